package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	streamFile = 1 << 30   // bytes of a log file of a stream: the product's default
	putFile    = 256 << 20 // bytes of a log file of puts: nine logs have to fit into memory
)

// rig is all that runs.
type rig struct {
	settings

	bin       string
	disk, mem string // folders of this run
	workers   int    // started so far: each has a folder of its own

	receiver *worker // ends of the limits
	sender   *worker
	reach    string // the receiver's address

	sources map[int]*source // of streams, by the size of a body
	puts    *cluster        // of this round
}

// source is a master whose log is complete.
type source struct {
	*worker
	addr     string
	last     int // end of its log
	messages float64
}

func newRig(ctx context.Context, s settings) (_ *rig, err error) {
	r := &rig{settings: s, sources: map[int]*source{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.disk, err = os.MkdirTemp(s.disk, "tandem-bench-"); err != nil {
		return nil, err
	}
	if r.mem, err = os.MkdirTemp(s.mem, "tandem-bench-"); err != nil {
		return nil, err
	}
	if r.bin, err = build(ctx, r.disk); err != nil {
		return nil, err
	}
	if r.receiver, err = startWorker(ctx, r.bin); err != nil {
		return nil, err
	}
	if r.sender, err = startWorker(ctx, r.bin); err != nil {
		return nil, err
	}
	a, err := r.receiver.do("serve")
	r.reach = a.Text["addr"]
	return r, err
}

// close ends all processes and removes all files.
func (r *rig) close() error {
	errs := []error{r.endRound()}
	for _, w := range []*worker{r.sender, r.receiver} {
		if w != nil {
			errs = append(errs, w.end())
		}
	}
	for _, s := range r.sources {
		errs = append(errs, s.end())
	}
	return errors.Join(append(errs, os.RemoveAll(r.disk), os.RemoveAll(r.mem))...)
}

// round measures each probe once.
func (r *rig) round(ctx context.Context, probes []probe) (round, error) {
	got := round{}
	for _, p := range probes {
		n, err := p.run(ctx, r, p.name)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", p.name, err), r.endRound())
		}
		got[p.name] = n
	}
	return got, r.endRound()
}

func (r *rig) endRound() error {
	if r.puts == nil {
		return nil
	}
	err := r.puts.end()
	r.puts = nil
	return err
}

// open starts a process on a new folder below dir.
func (r *rig) open(ctx context.Context, dir string, file int, more string) (*worker, error) {
	w, err := startWorker(ctx, r.bin)
	if err != nil {
		return nil, err
	}
	r.workers++
	if _, err := w.do("open dir=%s file=%d %s", filepath.Join(dir, fmt.Sprint(r.workers)), file, more); err != nil {
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

// source returns the master with messages of that size, which it makes at first.
func (r *rig) source(ctx context.Context, body int) (*source, error) {
	if s := r.sources[body]; s != nil {
		return s, nil
	}
	w, err := r.open(ctx, r.disk, streamFile, "")
	if err != nil {
		return nil, err
	}
	s := &source{worker: w}
	r.sources[body] = s
	bytes := r.streamMiB << 20
	if body < 32<<10 {
		bytes /= 4 // they take longer
	}
	a, err := w.do("lead congestion=%s", r.congestion)
	if err != nil {
		return nil, err
	}
	s.addr = a.Text["addr"]
	a, err = w.do("fill body=%d bytes=%d", body, bytes)
	s.last, s.messages = int(a.Number["end"]), a.Number["messages"]
	return s, err
}

// watched runs f and returns the seconds of CPU that the processes, which are named, spent meanwhile. It takes their CPU
// profiles if these are asked for.
func (r *rig) watched(name string, of map[string]*worker, f func() error) (cpu float64, err error) {
	for who, w := range of {
		a, err := w.do("spent")
		if err != nil {
			return 0, err
		}
		cpu -= a.Number["cpu"]
		if r.profile == "" {
			continue
		}
		if _, err := w.do("profile path=%s", filepath.Join(r.profile, fileName(name+"-"+who)+".prof")); err != nil {
			return 0, err
		}
	}
	err = f()
	for _, w := range of {
		if r.profile != "" {
			_, perr := w.do("profile")
			err = errors.Join(err, perr)
		}
		a, serr := w.do("spent")
		cpu += a.Number["cpu"]
		err = errors.Join(err, serr)
	}
	return cpu, err
}
