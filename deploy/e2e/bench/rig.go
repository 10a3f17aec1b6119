package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
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
	tables  map[int]*worker // of the config sync's helper, by the number of topics

	// Whole services, and what their clients need. Those of the product are this round's, others the run's.
	storageBin string
	pair       *pair
	config     *configNode
	programs   map[string]string // those of services/ that only some rows need, once they are built
	redis      *redis
	rocketmq   *rocketmq.RocketMQ
	rocket     *rocket
	children   int // started so far
	ports      *faults.Ports
}

// source is a master whose log is complete.
type source struct {
	*worker
	at       address
	last     int // end of its log
	messages float64
}

func newRig(ctx context.Context, s settings) (_ *rig, err error) {
	r := &rig{settings: s, ports: faults.NewPorts(), sources: map[int]*source{}, tables: map[int]*worker{}, programs: map[string]string{}}
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
	if r.bin, err = build(ctx, r.disk, "storage/internal/benchmark"); err != nil {
		return nil, err
	}
	if r.storageBin, err = build(ctx, r.disk, "storage"); err != nil {
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
	for _, w := range r.tables {
		errs = append(errs, w.end())
	}
	r.redis.end()
	r.rocket.end()
	return errors.Join(append(errs, os.RemoveAll(r.disk), os.RemoveAll(r.mem))...)
}

// round measures each probe once and adds what it found to got.
func (r *rig) round(ctx context.Context, probes []probe, got round) error {
	for _, p := range probes {
		n, err := p.run(ctx, r, p.name)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), r.endRound())
		}
		got[p.name] = n
	}
	return r.endRound()
}

func (r *rig) endRound() error {
	var errs []error
	if r.puts != nil {
		errs = append(errs, r.puts.end())
	}
	if r.pair != nil {
		errs = append(errs, r.pair.end(r.mem))
	}
	r.config.end()
	r.puts, r.pair, r.config = nil, nil, nil
	return errors.Join(errs...)
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
	if s.at, err = lead(w, r.congestion); err != nil {
		return nil, err
	}
	a, err := w.do("fill body=%d bytes=%d", body, bytes)
	s.last, s.messages = int(a.Number["end"]), a.Number["messages"]
	return s, err
}
