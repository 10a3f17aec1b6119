package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	rows       string
	rounds     int
	time       time.Duration
	streamMiB  int
	disk, mem  string
	congestion string
	profile    string
}

func main() {
	var s settings
	flag.StringVar(&s.rows, "rows", os.Getenv("ROWS"), "rows to measure, as 3,4; empty: all (default $ROWS)")
	flag.IntVar(&s.rounds, "rounds", 5, "interleaved rounds")
	flag.DurationVar(&s.time, "time", 500*time.Millisecond, "length of one measurement of puts or of a limit")
	flag.IntVar(&s.streamMiB, "stream-mib", 960, "MiB of one catch-up stream, at most 1000")
	flag.StringVar(&s.disk, "disk", os.TempDir(), "folder for the files of streams")
	flag.StringVar(&s.mem, "mem", memory(), "folder for the files of puts")
	flag.StringVar(&s.congestion, "congestion", "", "congestion control of product and limits; empty: the system's")
	flag.StringVar(&s.profile, "profile", "", "folder for CPU profiles of the first round")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// memory is a folder in memory where the system has one with room for the logs of a round.
func memory() string {
	const folder, room = "/dev/shm", 6 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) >= room { //nolint:gosec // a block size
		return folder
	}
	return os.TempDir()
}

func run(ctx context.Context, s settings) (err error) {
	if s.rounds < 1 || s.streamMiB < 1 || s.streamMiB > 1000 {
		return errors.New("-rounds must be 1 or more, -stream-mib 1 to 1000")
	}
	chosen, err := choose(rows(), s.rows)
	if err != nil {
		return err
	}
	if s.profile != "" {
		if err := os.MkdirAll(s.profile, 0o755); err != nil {
			return err
		}
	}
	r, err := newRig(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	needed := probesOf(chosen)
	var rounds []round
	began := time.Now()
	for i := range s.rounds {
		fmt.Fprintf(os.Stderr, "\rround %d of %d ", i+1, s.rounds)
		got, err := r.round(ctx, needed)
		if err != nil {
			return err
		}
		rounds = append(rounds, got)
		r.profile = "" // the first round's is enough
	}
	fmt.Fprint(os.Stderr, "\r                    \r")
	fmt.Printf("%s, %d rounds in %.0f s\n\n%s\n%s", machine(s), s.rounds, time.Since(began).Seconds(),
		table(chosen, rounds), measured(needed, rounds))
	return nil
}

// build makes the helper in dir.
func build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "benchmark")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/tandemlog/tandem/services/storage/internal/benchmark").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the benchmark: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return bin, nil
}
