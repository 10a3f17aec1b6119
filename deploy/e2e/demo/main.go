package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the binaries (make build)")
	store := flag.String("store", "services/storage/testdata/golden/rocketmq-5.3.3-crash.tar.gz", "archive with a store that RocketMQ wrote")
	compose := flag.String("compose", "", "run the nodes as containers of this compose file")
	keep := flag.Bool("keep", false, "keep the data folder")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "tandem-demo-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	err = run(ctx, *bin, *store, *compose, dir)
	if *keep {
		fmt.Println("   data kept in", dir)
	} else if rerr := os.RemoveAll(dir); rerr != nil && err == nil {
		err = rerr
	}
	if err != nil {
		fmt.Printf("\nDEMO FAILED: %v\n", err)
		os.Exit(1)
	}
}

// run tells the story; every step either holds or ends it.
func run(ctx context.Context, bin, archive, compose, dir string) error {
	began := time.Now()
	golden := filepath.Join(dir, "golden")
	step("A store that a real RocketMQ wrote")
	if err := unpack(archive, golden); err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	c, err := newCluster(bin, compose, dir)
	if err != nil {
		return err
	}
	defer c.stopEverything()
	s := &story{cluster: c, golden: golden, sent: newBook(), leads: "master", reader: newConsumer(c)}
	g := &group{cluster: c}
	for _, act := range []func(context.Context) error{
		s.takeOver, s.transfer, s.killSlaves, s.killMaster, s.changeMaster, s.readFromSlave, s.verify, s.verifyTables, g.run,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("\nDEMO OK: %d messages acknowledged, all 3 nodes killed in turn and back, 3 logs of %s are the same bytes;\n"+
		"         %d appends acknowledged, all 3 ledgers killed and back, 3 logs of %d entries are equal (%.1f s)\n",
		s.sent.acknowledged(), size(s.end), len(g.load.told), g.end+1, time.Since(began).Seconds())
	return nil
}
