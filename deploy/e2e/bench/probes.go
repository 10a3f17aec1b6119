package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// probe measures one thing; what it returns has names as "MB/s".
type probe struct {
	name string
	run  func(ctx context.Context, r *rig, name string) (map[string]float64, error)
}

// round is what the probes of one round returned, by their names.
type round map[string]map[string]float64

// Frames of a stream, bytes.
const (
	plainFrame   = 32 << 10
	grantedFrame = 256 << 10
)

// probes are all measurements in the order of a round.
func probes() []probe {
	return []probe{
		{"plain stream", limitOf("stream")},
		{"stream, 32 KiB frames, file in cache", catchUp(32<<10, plainFrame, true)},
		{"stream, granted frames, file in cache", catchUp(32<<10, grantedFrame, true)},
		{"stream, 32 KiB frames", catchUp(32<<10, plainFrame, false)},
		{"stream, granted frames", catchUp(32<<10, grantedFrame, false)},
		{"stream of 1 KiB, granted frames, file in cache", catchUp(1<<10, grantedFrame, true)},
		{"stream of 1 KiB, granted frames", catchUp(1<<10, grantedFrame, false)},
		{"ping-pong", limitOf("ping")},
		{"sync put, c=1", put(1, 1, 1)},
		{"sync put, c=64", put(1, 64, 1)},
		{"sync put, c=512", put(1, 512, 1)},
		{"async put, c=512", put(1, 512, 0)},
		{"put to 2 slaves", put(2, 64, 2)},
		{"put to 4 slaves", put(4, 64, 4)},
		{"put to 8 slaves", put(8, 64, 8)},
		{"allocations", allocations},
	}
}

// probesOf returns the probes that the rows need.
func probesOf(chosen []row) []probe {
	return slices.DeleteFunc(probes(), func(p probe) bool {
		return !slices.ContainsFunc(chosen, func(r row) bool { return slices.Contains(r.value.needs, p.name) })
	})
}

// limitOf lets the ends of a limit work for a while.
func limitOf(verb string) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(_ context.Context, r *rig, name string) (map[string]float64, error) {
		var a answer
		cpu, err := r.watched(name, map[string]*worker{"sender": r.sender, "receiver": r.receiver}, func() (err error) {
			a, err = r.sender.do("%s addr=%s time=%s congestion=%s", verb, r.reach, r.time, r.congestion)
			return err
		})
		return withCPU(a, cpu), err
	}
}

// withCPU adds what all processes together spent, for each GB or each thing that was done.
func withCPU(a answer, cpu float64) map[string]float64 {
	if gb := a.Number["GB"]; gb > 0 {
		a.Number["cpu s/GB"] = cpu / gb
	} else {
		a.Number["cpu us each"] = cpu * 1e6 / a.Number["done"]
	}
	delete(a.Number, "GB")
	delete(a.Number, "done")
	return a.Number
}

// catchUp streams a whole log to an empty slave, which dispatches it. touched: the pages of its file are in the page cache.
func catchUp(body, frame int, touched bool) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (_ map[string]float64, err error) {
		src, err := r.source(ctx, body)
		if err != nil {
			return nil, err
		}
		how := "eager=1"
		if touched {
			how += " touched=1"
		}
		s, err := r.open(ctx, r.disk, streamFile, how)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.end()) }()
		var a answer
		cpu, err := r.watched(name, map[string]*worker{"master": src.worker, "slave": s}, func() error {
			if err := join(src.worker, src.addr, s, 0, 0, frame, r.congestion); err != nil {
				return err
			}
			a, err = s.do("arrived to=%d", src.last)
			return err
		})
		return withCPU(a, cpu), err
	}
}

// put measures puts of 200 bytes by callers in the master's process, with slaves connected of which acks are waited for.
func put(slaves, callers, acks int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		c, err := r.cluster(ctx, slaves)
		if err != nil {
			return nil, err
		}
		var a answer
		all := map[string]*worker{"master": c.master}
		for i, s := range c.slaves[:slaves] {
			all[fmt.Sprint("slave", i+1)] = s.worker
		}
		cpu, err := r.watched(name, all, func() error {
			a, err = c.master.do("put callers=%d acks=%d body=200 time=%s", callers, acks, r.time)
			return err
		})
		return withCPU(a, cpu), err
	}
}

// allocations counts those of the whole master per sync put and of the whole slave per message.
func allocations(ctx context.Context, r *rig, _ string) (map[string]float64, error) {
	const warm, count = 1000, 10_000 // enough for what the questions themselves allocate not to show
	c, err := r.cluster(ctx, 1)
	if err != nil {
		return nil, err
	}
	s := c.slaves[0]
	if _, err := c.master.do("allocs count=%d acks=1 body=200", warm); err != nil {
		return nil, err
	}
	before, err := s.do("spent")
	if err != nil {
		return nil, err
	}
	a, err := c.master.do("allocs count=%d acks=1 body=200", count)
	if err != nil {
		return nil, err
	}
	after, err := s.do("spent")
	return map[string]float64{
		"master, per put":    a.Number["allocs"],
		"slave, per message": (after.Number["mallocs"] - before.Number["mallocs"]) / count,
	}, err
}

// fileName is a name without what file names should not have.
func fileName(s string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(", =/", c) {
			return '_'
		}
		return c
	}, fmt.Sprint(s))
}
