package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}

// run obeys commands until in ends.
func run(ctx context.Context, in io.Reader, out io.Writer) error {
	w := &worker{}
	enc := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := enc.Encode(w.obey(ctx, lines.Text())); err != nil {
			return errors.Join(fmt.Errorf("answer: %w", err), w.close())
		}
	}
	return errors.Join(lines.Err(), w.close())
}

// answer is what a command gets.
type answer struct {
	Error  string             `json:"error,omitempty"`
	Number map[string]float64 `json:"number,omitempty"`
}

// worker is the process: a master and its slave.
type worker struct {
	pair    *pair
	profile *os.File
}

// verbs are the commands that do something again and again, and what that is.
func (w *worker) verbs() map[string]func(ctx context.Context) (func() error, func() error) {
	p := w.pair
	return map[string]func(ctx context.Context) (before, timed func() error){
		"check": p.check, "delta": p.delta, "fetch": p.fetch, "full": p.full,
		"empty": p.empty, "empty-stream": p.emptyStream, "protobuf": p.protobuf, "json": p.json, "own-json": p.ownJSON,
	}
}

func (w *worker) obey(ctx context.Context, line string) answer {
	verb, rest, _ := strings.Cut(line, " ")
	args := map[string]string{}
	for _, f := range strings.Fields(rest) {
		key, value, _ := strings.Cut(f, "=")
		args[key] = value
	}
	a, err := w.do(ctx, verb, args)
	if err != nil {
		return answer{Error: fmt.Sprintf("%s: %v", verb, err)}
	}
	return a
}

func (w *worker) do(ctx context.Context, verb string, args map[string]string) (answer, error) {
	switch {
	case verb == "open":
		return answer{}, w.open(ctx, args)
	case verb == "spent":
		return spent()
	case verb == "profile":
		return answer{}, w.toggleProfile(args["path"])
	case w.pair == nil:
		return answer{}, errors.New("nothing is open")
	}
	prepare := w.verbs()[verb]
	if prepare == nil {
		return answer{}, errors.New("there is no such command")
	}
	count, err := strconv.Atoi(args["count"])
	if err != nil || count < 1 {
		return answer{}, fmt.Errorf("count=%q is no number above 0", args["count"])
	}
	before, timed := prepare(ctx)
	return measure(count, before, timed)
}

func (w *worker) open(ctx context.Context, args map[string]string) error {
	if w.pair != nil {
		return errors.New("something is open")
	}
	topics, err := strconv.Atoi(args["topics"])
	if err != nil || topics < 1 {
		return fmt.Errorf("topics=%q is no number above 0", args["topics"])
	}
	w.pair, err = open(ctx, args["dir"], topics)
	return err
}

func (w *worker) close() error {
	if w.pair == nil {
		return nil
	}
	return w.pair.close()
}

// measure does something count times, and a tenth of that before, which does not count; what comes before each is not timed.
func measure(count int, before, timed func() error) (answer, error) {
	took := make([]time.Duration, 0, count)
	warm := (count + 9) / 10
	for i := range count + warm {
		if err := before(); err != nil {
			return answer{}, err
		}
		began := time.Now()
		if err := timed(); err != nil {
			return answer{}, err
		}
		if i >= warm {
			took = append(took, time.Since(began))
		}
	}
	slices.Sort(took)
	at := func(p float64) float64 { return float64(took[int(p*float64(count-1))].Nanoseconds()) / 1e3 }
	return answer{Number: map[string]float64{"p50 us": at(0.50), "p99 us": at(0.99), "done": float64(count + warm)}}, nil
}

// toggleProfile begins a CPU profile in a file, or ends the one that runs.
func (w *worker) toggleProfile(path string) error {
	if f := w.profile; f != nil {
		pprof.StopCPUProfile()
		w.profile = nil
		return f.Close()
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w.profile = f
	return pprof.StartCPUProfile(f)
}

// spent says how many seconds of CPU the process has used since its start.
func spent() (answer, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return answer{Number: map[string]float64{"cpu": time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()}}, err
}
