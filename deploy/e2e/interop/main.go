package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the binaries (make build)")
	only := flag.String("run", "a,b,c,d,e,f,g,h,i", "scenarios to run")
	keep := flag.Bool("keep", false, "keep the data folder")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *bin, strings.Split(*only, ","), *keep)
	stop()
	if err != nil {
		fmt.Printf("\nINTEROP FAILED: %v\n", err)
		os.Exit(1)
	}
}

// scenario is one story; what it returns is its line of result.
type scenario struct {
	name, title string
	play        func(context.Context, *stage) (string, error)
}

func scenarios() []scenario {
	return []scenario{
		{"a", "a Tandem slave joins a RocketMQ 5.3.3 master in the middle of a load", followVersion("5.3.3")},
		{"b", "a Tandem slave joins a RocketMQ 4.9.7 master in the middle of a load", followVersion("4.9.7")},
		{"c", "a RocketMQ 4.9.7 slave follows a Tandem master on a folder taken over, then becomes a master", lead},
		{"d", "what a put on a Tandem sync master is told while its only RocketMQ slave stops and goes", gone},
		{"e", "DLedger 0.3.1.2 and Tandem write the folders of a ledger in turn", turns},
		{"f", "a Tandem pair of storage and config sync follows a RocketMQ 5.3.3 master: log and tables", mirror},
		{"g", "a RocketMQ 5.3.3 slave that knows a name server alone follows a Tandem pair, then becomes a master", adoptVersion("5.3.3")},
		{"h", "the same with 4.9.7", adoptVersion("4.9.7")},
		{"i", "RocketMQ 5.3.3 and 4.9.7 brokers start on tables that Tandem wrote, and Tandem on what they left", startedVersions},
	}
}

// limit bounds one scenario.
const limit = 6 * time.Minute

func run(ctx context.Context, bin string, only []string, keep bool) error {
	began := time.Now()
	var chosen []scenario
	for _, s := range scenarios() {
		for _, name := range only {
			if name == s.name {
				chosen = append(chosen, s)
			}
		}
	}
	if len(chosen) == 0 || len(chosen) != len(only) {
		return fmt.Errorf("-run %s: each scenario is one of a to i", strings.Join(only, ","))
	}
	dir, err := os.MkdirTemp("", "tandem-interop-")
	if err != nil {
		return err
	}
	if keep {
		defer fmt.Println("   data kept in", dir)
	} else {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	}
	t, err := newTheatre(bin, dir)
	if err != nil {
		return err
	}
	var results []string
	for _, s := range chosen {
		result, err := perform(ctx, t, s)
		if err != nil {
			return fmt.Errorf("(%s) %w", s.name, err)
		}
		results = append(results, result)
	}
	fmt.Printf("\nINTEROP OK (%.0f s)\n", time.Since(began).Seconds())
	for _, r := range results {
		fmt.Println("  ", r)
	}
	return nil
}

// perform plays one scenario and ends its processes.
func perform(ctx context.Context, t *theatre, s scenario) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the scenario took longer than %v", limit))
	defer cancel()
	began := time.Now()
	fmt.Printf("\n(%s) %s\n", s.name, s.title)
	st := &stage{theatre: t, dir: filepath.Join(t.dir, s.name)}
	if err := os.MkdirAll(st.dir, 0o755); err != nil {
		return "", err
	}
	defer st.clear()
	result, err := s.play(ctx, st)
	if err != nil {
		st.showLogs()
		return "", err
	}
	result = fmt.Sprintf("(%s) OK: %s (%.0f s)", s.name, result, time.Since(began).Seconds())
	fmt.Println("  ", result)
	return result, nil
}

func say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }
