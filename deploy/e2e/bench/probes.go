package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
)

// probe measures one thing; what it returns has names as "MB/s".
type probe struct {
	name string
	run  func(ctx context.Context, r *rig, name string) (map[string]float64, error)
	part part
}

// part says what a probe runs. Those that are inside have rounds of their own, as nothing else runs then, not even idle.
type part int

const (
	inside         part = iota // master and slaves without clients
	outside                    // whole storages
	besideRedis                // Redis, if it is there
	besideRocketMQ             // RocketMQ, if it is there
	once                       // whole services for minutes: measured in the first round only
)

// parts splits probes by their rounds.
func parts(all []probe) [][]probe {
	var in, out, last []probe
	for _, p := range all {
		switch p.part {
		case inside:
			in = append(in, p)
		case once:
			last = append(last, p)
		default:
			out = append(out, p)
		}
	}
	return [][]probe{in, out, last}
}

// missing returns why probes of a part cannot be measured here, or "".
func (r *rig) missing(ctx context.Context, p part) string {
	switch p {
	case besideRedis:
		if _, err := exec.LookPath("redis-server"); err != nil {
			return "redis-server is not installed"
		}
	case besideRocketMQ:
		err := rocketmq.Installed()
		if err == nil && r.rocketmq == nil {
			r.rocketmq, err = rocketmq.Resolve(ctx, r.disk, rocketVersion)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return "RocketMQ " + rocketVersion + " cannot be run here, as said above"
		}
	default:
	}
	return ""
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
	return append([]probe{
		{"plain stream", limitOf("stream"), inside},
		{"stream, 32 KiB frames, file in cache", catchUp(32<<10, plainFrame, true), inside},
		{"stream, granted frames, file in cache", catchUp(32<<10, grantedFrame, true), inside},
		{"stream, 32 KiB frames", catchUp(32<<10, plainFrame, false), inside},
		{"stream, granted frames", catchUp(32<<10, grantedFrame, false), inside},
		{"stream of 1 KiB, granted frames, file in cache", catchUp(1<<10, grantedFrame, true), inside},
		{"stream of 1 KiB, granted frames", catchUp(1<<10, grantedFrame, false), inside},
		{"ping-pong", limitOf("ping"), inside},
		{"sync put, c=1", put(1, 1, 1), inside},
		{"sync put, c=64", put(1, 64, 1), inside},
		{"sync put, c=512", put(1, 512, 1), inside},
		{"async put, c=512", put(1, 512, 0), inside},
		{"put to 2 slaves", put(2, 64, 2), inside},
		{"put to 4 slaves", put(4, 64, 4), inside},
		{"put to 8 slaves", put(8, 64, 8), inside},
		{"allocations", allocations, inside},
		{"stream put, c=1", streamPut(1, 1), outside},
		{"stream put, c=64", streamPut(64, 1), outside},
		{"stream put, c=512", streamPut(512, 1), outside},
		{"async stream put, c=512", streamPut(512, 0), outside},
		{"unary put, c=1", unaryPut(1), outside},
		{"unary put, c=64", unaryPut(64), outside},
		{"no-op call, c=64", noopCalls(64), outside},
		{"Redis SET+WAIT, c=64", redisPut(64), besideRedis},
		{"Redis SET+WAIT, c=512", redisPut(512), besideRedis},
		{"Redis 64 SETs + WAIT", redisGathered(64), besideRedis},
		{"Redis 512 SETs + WAIT", redisGathered(512), besideRedis},
		{"RocketMQ send, c=1", rocketPut(1), besideRocketMQ},
		{"RocketMQ send, c=64", rocketPut(64), besideRocketMQ},
	}, configProbes()...)
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
		cpu, err := r.watched(name, map[string]process{"sender": r.sender, "receiver": r.receiver}, func() (err error) {
			a, err = r.sender.do("%s addr=%s time=%s congestion=%s", verb, r.reach, r.time, r.congestion)
			return err
		})
		return withCPU(a, cpu), err
	}
}

// withCPU adds what all processes together spent, for each GB or each thing that was done.
func withCPU(a answer, cpu float64) map[string]float64 {
	if a.Number == nil { // nothing was measured
		return nil
	}
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
		how := ""
		if touched {
			how = "touched=1"
		}
		s, err := r.open(ctx, r.disk, streamFile, how)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.end()) }()
		var a answer
		cpu, err := r.watched(name, map[string]process{"master": src.worker, "slave": s}, func() error {
			if err := join(src.worker, src.at, s, 0, 0, frame, r.congestion); err != nil {
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
		all := map[string]process{"master": c.master}
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

// allocations counts those of the whole master per sync put and of the whole slave per message, both without the control
// stream: what gRPC allocates for its answers, of which there are 200 a second at most, is no cost of a message.
func allocations(ctx context.Context, r *rig, _ string) (map[string]float64, error) {
	const warm, count = 1000, 10_000 // enough for what the questions themselves allocate not to show
	c, err := r.cluster(ctx, 0)
	if err != nil {
		return nil, err
	}
	c.at.control = ""
	if err := c.connect(ctx, 1); err != nil {
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
