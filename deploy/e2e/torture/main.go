package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
)

func main() {
	t := &torture{ports: faults.NewPorts(), faults: map[string]int{}, statuses: map[string]int{}}
	flag.StringVar(&t.bin, "bin", "bin", "folder of the binaries (make build)")
	rounds := flag.Int("rounds", 20, "rounds of faults, 1 to 3 s each, and checks")
	first := flag.Int("first", 1, "first round; the life of its cluster begins there")
	flag.Uint64Var(&t.seed, "seed", 0, "seed of the plan; 0: a random one")
	flag.BoolVar(&t.verbose, "v", false, "print the plan of each round")
	keep := flag.Bool("keep", false, "keep the data folder even when all is well")
	flag.Parse()
	for t.seed == 0 {
		t.seed = uint64(rand.Uint32())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := t.run(ctx, *first, *rounds)
	if ok && !*keep {
		err = os.RemoveAll(t.dir)
	} else if t.dir != "" {
		fmt.Println("data kept in", t.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// run says whether everything held; an error is one of the harness.
func (t *torture) run(ctx context.Context, first, rounds int) (bool, error) {
	began := time.Now()
	var err error
	if t.dir, err = os.MkdirTemp("", "tandem-torture-"); err != nil {
		return false, err
	}
	fmt.Printf("seed %d, %d rounds (replay the plan: -seed %d)\n", t.seed, rounds, t.seed)
	for r, last := first, first+rounds-1; r <= last && t.bad == 0; {
		end := min((r-1)/roundsOfLife*roundsOfLife+roundsOfLife, last)
		if err := t.life(ctx, r, end); err != nil {
			fmt.Println(t.summary("ENDED EARLY", time.Since(began)))
			return false, err
		}
		r = end + 1
	}
	verdict := "OK"
	if t.bad > 0 {
		verdict = "FAILED"
	}
	fmt.Println(t.summary(verdict, time.Since(began)))
	return t.bad == 0, nil
}
