package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/pkg/service/ballast"
)

func main() {
	release := ballast.Hold() // as the service does
	err := run(context.Background(), os.Stdin, os.Stdout)
	release()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}

// run obeys commands until in ends.
func run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := &worker{}
	enc := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := enc.Encode(w.obey(ctx, lines.Text())); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	return w.close()
}

// answer is what a command gets.
type answer struct {
	Error  string             `json:"error,omitempty"`
	Number map[string]float64 `json:"number,omitempty"`
	Text   map[string]string  `json:"text,omitempty"`
}

// worker is the process: a storage folder and what it does at the moment.
type worker struct {
	node    *node
	leader  *leader
	joined  *upstream
	limits  io.Closer
	profile *os.File
}

// verbs are the commands.
func (w *worker) verbs() map[string]func(context.Context, *words, *answer) error {
	return map[string]func(context.Context, *words, *answer) error{
		"open": w.open, "close": func(context.Context, *words, *answer) error { return w.close() },
		"lead": w.lead, "grant": w.grant, "fill": w.fill, "put": w.put, "allocs": w.allocs, "acked": w.acked,
		"join": w.join, "arrived": w.arrived, "leave": w.leave, "reset": w.reset,
		"serve": w.serve, "stream": w.stream, "ping": w.ping,
		"spent": w.spent, "profile": w.toggleProfile,
	}
}

func (w *worker) obey(ctx context.Context, line string) answer {
	a := answer{Number: map[string]float64{}, Text: map[string]string{}}
	verb, rest, _ := strings.Cut(line, " ")
	do := w.verbs()[verb]
	if do == nil {
		return answer{Error: fmt.Sprintf("no command %q", verb)}
	}
	args := parse(rest)
	err := do(ctx, args, &a)
	if args.err != nil {
		err = args.err
	}
	if err != nil {
		return answer{Error: fmt.Sprintf("%s: %v", verb, err)}
	}
	return a
}

// close ends all that runs and removes the folder.
func (w *worker) close() error {
	var errs []error
	if w.joined != nil {
		w.joined.end()
	}
	if w.leader != nil {
		errs = append(errs, w.leader.end())
	}
	if w.node != nil {
		errs = append(errs, w.node.close())
	}
	if w.limits != nil {
		errs = append(errs, w.limits.Close())
	}
	w.joined, w.leader, w.node, w.limits = nil, nil, nil, nil
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// spent says what the process has used since its start: seconds of CPU, and how often it allocated.
func (w *worker) spent(_ context.Context, _ *words, a *answer) error {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return err
	}
	a.Number["mallocs"], a.Number["cpu"] = float64(m.Mallocs), time.Duration(u.Utime.Nano()+u.Stime.Nano()).Seconds()
	return nil
}

// toggleProfile begins a CPU profile in the file of the word path, or ends the one that runs; then it also writes what was
// allocated where since the start of the process.
func (w *worker) toggleProfile(_ context.Context, args *words, _ *answer) error {
	if w.profile != nil {
		pprof.StopCPUProfile()
		name := w.profile.Name()
		err := w.profile.Close()
		w.profile = nil
		f, ferr := os.Create(strings.TrimSuffix(name, ".prof") + ".allocs.prof")
		if ferr != nil {
			return errors.Join(err, ferr)
		}
		runtime.GC() // until then the profile lacks what came last
		return errors.Join(err, pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
	}
	f, err := os.Create(args.text("path"))
	if err != nil {
		return err
	}
	w.profile = f
	return pprof.StartCPUProfile(f)
}

// words are the arguments of a command. The first one that is missing or wrong is kept in err.
type words struct {
	m   map[string]string
	err error
}

func parse(s string) *words {
	w := &words{m: map[string]string{}}
	for _, f := range strings.Fields(s) {
		key, value, _ := strings.Cut(f, "=")
		w.m[key] = value
	}
	return w
}

func (w *words) text(key string) string { return w.m[key] }

func (w *words) int(key string) int {
	if w.m[key] == "" {
		return 0
	}
	n, err := strconv.Atoi(w.m[key])
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%s: %w", key, err)
	}
	return n
}

func (w *words) duration(key string) time.Duration {
	d, err := time.ParseDuration(w.m[key])
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("%s: %w", key, err)
	}
	return d
}
