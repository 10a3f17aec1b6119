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
	t := &torture{ports: faults.NewPorts(), faults: map[string]int{}, errors: map[string]int{}, began: time.Now()}
	flag.StringVar(&t.bin, "bin", "bin", "folder of the binaries (make build)")
	lasts := flag.Duration("duration", 10*time.Minute, "how long, in windows of 3 to 8 s of faults, and checks")
	first := flag.Int("first", 1, "first window; the life of its cluster begins there")
	flag.Uint64Var(&t.seed, "seed", 0, "seed of the plan; 0: a random one")
	flag.BoolVar(&t.verbose, "v", false, "print the plan of each window")
	kills := flag.Int("kills", 0, "instead: kill the leader this often under load, and tell how long it took until the next one acknowledged")
	away := flag.Duration("isolate", 0, "instead: cut a follower off for so long, three ways, and tell what its return did")
	keep := flag.Bool("keep", false, "keep the data folder even when all is well")
	flag.Parse()
	for t.seed == 0 {
		t.seed = uint64(rand.Uint32())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := t.run(ctx, *first, *lasts, *kills, *away)
	if ok && !*keep {
		err = os.RemoveAll(t.dir)
	} else if t.dir != "" {
		fmt.Println("data kept in", t.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tortureledger:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// run says whether everything held; an error is one of the harness.
func (t *torture) run(ctx context.Context, first int, lasts time.Duration, kills int, away time.Duration) (ok bool, err error) {
	if t.dir, err = os.MkdirTemp("", "tandem-tortureledger-"); err != nil {
		return false, err
	}
	switch {
	case kills > 0:
		return t.killLeaders(ctx, kills)
	case away > 0:
		return t.cutFollowers(ctx, away)
	}
	fmt.Printf("seed %d, %v (replay the plan: -seed %d)\n", t.seed, lasts, t.seed)
	until := t.began.Add(lasts)
	for window := first; t.bad == 0 && time.Now().Before(until); {
		if window, err = t.life(ctx, window, until); err != nil {
			fmt.Println(t.summary("ENDED EARLY"))
			return false, err
		}
	}
	verdict := "OK"
	if t.bad > 0 {
		verdict = "FAILED"
	}
	fmt.Println(t.summary(verdict))
	return t.bad == 0, nil
}
