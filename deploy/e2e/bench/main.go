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

// leastRounds are those from which a median is believed.
const leastRounds = 5

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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == noopVerb {
		return serveNoop(ctx, args[1])
	}
	var s settings
	flag.StringVar(&s.rows, "rows", "", "rows to measure, as 3,4; empty: all")
	flag.IntVar(&s.rounds, "rounds", leastRounds, "interleaved rounds; fewer than the default only to try something")
	flag.DurationVar(&s.time, "time", 500*time.Millisecond, "length of one measurement of puts or of a limit")
	flag.IntVar(&s.streamMiB, "stream-mib", 960, "MiB of one catch-up stream, at most 1000")
	flag.StringVar(&s.disk, "disk", os.TempDir(), "folder for the files of streams")
	flag.StringVar(&s.mem, "mem", memory(), "folder for the files of puts")
	flag.StringVar(&s.congestion, "congestion", "", "congestion control of product and limits; empty: the system's")
	flag.StringVar(&s.profile, "profile", "", "folder for CPU profiles of the first round")
	flag.Parse()
	return run(ctx, s)
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
	began := time.Now()
	needed, rounds, missing, err := measure(ctx, r, probesOf(chosen))
	if err != nil {
		return err
	}
	few := ""
	if s.rounds < leastRounds {
		few = fmt.Sprintf(" (a median counts from %d on)", leastRounds)
	}
	fmt.Printf("%s, %d rounds%s in %.0f s\n\n%s\n%s", machine(s), s.rounds, few, time.Since(began).Seconds(),
		table(chosen, rounds, missing), measured(needed, rounds))
	return nil
}

// measure returns the probes that could be measured, their rounds, and why the others could not.
func measure(ctx context.Context, r *rig, needed []probe) (able []probe, rounds []round, missing map[string]string, err error) {
	missing, asked := map[string]string{}, map[part]string{}
	for _, p := range needed {
		why, ok := asked[p.part]
		if !ok {
			why = r.missing(ctx, p.part)
			asked[p.part] = why
		}
		if why != "" {
			missing[p.name] = why
		} else {
			able = append(able, p)
		}
	}
	for range r.rounds {
		rounds = append(rounds, round{})
	}
	profile := r.profile
	for n, probes := range parts(able) {
		r.profile = profile
		for i, got := range rounds {
			if len(probes) == 0 {
				break
			}
			if i > 0 && probes[0].part == once {
				for _, p := range probes {
					got[p.name] = rounds[0][p.name]
				}
				continue
			}
			fmt.Fprintf(os.Stderr, "\rpart %d, round %d of %d ", n+1, i+1, r.rounds)
			if err := r.round(ctx, probes, got); err != nil {
				return nil, nil, nil, err
			}
			r.profile = "" // the first round's is enough
		}
	}
	fmt.Fprint(os.Stderr, "\r                            \r")
	return able, rounds, missing, nil
}

// build makes a program of services/ in dir.
func build(ctx context.Context, dir, program string) (string, error) {
	bin := filepath.Join(dir, filepath.Base(program))
	out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/tandemlog/tandem/services/"+program).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, strings.TrimSpace(string(out)))
	}
	return bin, nil
}
