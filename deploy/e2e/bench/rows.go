package main

import (
	"fmt"
	"slices"
	"strings"
)

// row is a line of the table.
type row struct {
	id, what string
	value    formula
	goal     goal
}

// formula computes a row from the probes of one round.
type formula struct {
	needs []string
	of    func(round) float64
}

// figure is one number of a probe.
type figure struct{ probe, name string }

func (f figure) in(r round) float64 { return r[f.probe][f.name] }

// goal is what a row should reach; without a test it is only reported.
type goal struct {
	text string
	met  func(float64) bool
}

func atLeast(n float64) goal {
	return goal{fmt.Sprintf(">= %g", n), func(v float64) bool { return v >= n }}
}

func atMost(n float64) goal {
	return goal{fmt.Sprintf("<= %g", n), func(v float64) bool { return v <= n }}
}

// rows are all lines. The numbers in front group them; more than one line may share one.
func rows() []row {
	const (
		limit, ping              = "plain stream", "ping-pong"
		sync1, sync64, sync512   = "sync put, c=1", "sync put, c=64", "sync put, c=512"
		slaves2, slaves4, slave8 = "put to 2 slaves", "put to 4 slaves", "put to 8 slaves"
	)
	stream := func(probe string) formula { return over(figure{probe, "MB/s"}, figure{limit, "MB/s"}) }
	put := func(a, b, name string) formula { return over(figure{a, name}, figure{b, name}) }
	return append([]row{
		{"1", "catch-up to a slave, 32 KiB frames / plain stream", stream("stream, 32 KiB frames, file in cache"), atLeast(0.8)},
		{"1", "the same, granted 256 KiB frames", stream("stream, granted frames, file in cache"), atLeast(1)},
		{"1", "the same, records of 1 KiB", stream("stream of 1 KiB, granted frames, file in cache"), goal{}},
		{"2", "catch-up into a file never touched, 32 KiB frames / plain stream", stream("stream, 32 KiB frames"), atLeast(0.7)},
		{"2", "the same, granted 256 KiB frames", stream("stream, granted frames"), atLeast(0.7)},
		{"2", "the same, records of 1 KiB", stream("stream of 1 KiB, granted frames"), goal{}},
		{"3", "sync put c=1, p50 / ping-pong p50", put(sync1, ping, "p50 us"), atMost(1)},
		{"3", "sync put c=1, p99 / ping-pong p99", put(sync1, ping, "p99 us"), atMost(2)},
		{"4", "sync puts c=64 in the time of a ping-pong", within(figure{sync64, "per second"}, figure{ping, "p50 us"}), atLeast(20)},
		{"4", "sync put c=64, p99 / ping-pong p99", put(sync64, ping, "p99 us"), atMost(3)},
		{"5", "sync puts c=512 in the time of a ping-pong", within(figure{sync512, "per second"}, figure{ping, "p50 us"}), atLeast(60)},
		{"6", "sync / async puts, c=512, in the master's process", put(sync512, "async put, c=512", "per second"), atLeast(0.8)},
		{"6", "the same from a client process, by PutStream", put("stream put, c=512", "async stream put, c=512", "per second"), atLeast(0.8)},
		{"8", "rate with 2 slaves that all ack / with 1, c=64", put(slaves2, sync64, "per second"), atLeast(0.7)},
		{"8", "with 4", put(slaves4, sync64, "per second"), atLeast(0.5)},
		{"8", "with 8", put(slave8, sync64, "per second"), atLeast(0.28)},
		{"8", "p99 with 8 slaves / with 1", put(slave8, sync64, "p99 us"), atMost(4)},
		{"8", "bytes to all slaves, least step of 1, 2, 4, 8", leastStep(sync64, slaves2, slaves4, slave8), atLeast(1)},
		{"8", "bytes to 8 slaves / to 1", scaled(put(slave8, sync64, "per second"), 8), atLeast(1.8)},
		{"19", "allocations of the master, a sync put", only(figure{"allocations", "master, per put"}), atMost(1)},
		{"19", "allocations of the slave, a message", only(figure{"allocations", "slave, per message"}), atMost(0.01)},
	}, append(configRows(), besides()...)...)
}

// besides are the lines of clients, and of what they are compared with.
func besides() []row {
	const (
		stream1, stream64, stream512 = "stream put, c=1", "stream put, c=64", "stream put, c=512"
		unary1, unary64              = "unary put, c=1", "unary put, c=64"
		rocket1, rocket64            = "RocketMQ send, c=1", "RocketMQ send, c=64"
	)
	rate := func(a, b string) formula { return over(figure{a, "per second"}, figure{b, "per second"}) }
	p50 := func(a, b string) formula { return over(figure{a, "p50 us"}, figure{b, "p50 us"}) }
	return []row{
		// The goal is against callers that each wait for their own SET. Many SETs before one WAIT have one caller who is told of all
		// of them at once, and waits for the slowest: that is a batch, and is only reported.
		{"7", "PutStream from a client process / Redis SET+WAIT on 64 connections, c=64", rate(stream64, "Redis SET+WAIT, c=64"), atLeast(2)},
		{"7", "the same, c=512", rate(stream512, "Redis SET+WAIT, c=512"), atLeast(2)},
		{"7", "PutStream / Redis with 64 SETs before each WAIT on one connection, c=64", rate(stream64, "Redis 64 SETs + WAIT"), goal{}},
		{"7", "the same, c=512", rate(stream512, "Redis 512 SETs + WAIT"), goal{}},
		{"15", "unary Put / a call that does nothing, c=64", rate(unary64, "no-op call, c=64"), atLeast(0.7)},
		{"rmq", "PutStream / RocketMQ " + rocketVersion + " with a slave, messages a second, c=64", rate(stream64, rocket64), atLeast(10)},
		{"rmq", "the same, p50, c=1", p50(stream1, rocket1), atMost(0.5)},
		{"rmq", "unary Put / RocketMQ, messages a second, c=64", rate(unary64, rocket64), atLeast(2.2)},
		{"rmq", "the same, p50, c=1", p50(unary1, rocket1), atMost(0.8)},
		{"rmq", "a call that does nothing / RocketMQ, messages a second, c=64", rate("no-op call, c=64", rocket64), goal{}},
	}
}

func only(f figure) formula { return formula{[]string{f.probe}, f.in} }

func over(a, b figure) formula {
	return formula{[]string{a.probe, b.probe}, func(r round) float64 { return a.in(r) / b.in(r) }}
}

// within is how much of a rate falls into a time in microseconds.
func within(rate, us figure) formula {
	return formula{[]string{rate.probe, us.probe}, func(r round) float64 { return rate.in(r) * us.in(r) / 1e6 }}
}

func scaled(f formula, by float64) formula {
	return formula{f.needs, func(r round) float64 { return by * f.of(r) }}
}

// leastStep is the least growth of the bytes to all slaves when their number doubles.
func leastStep(probes ...string) formula {
	return formula{probes, func(r round) float64 {
		steps := make([]float64, 0, len(probes))
		for i := 1; i < len(probes); i++ {
			steps = append(steps, 2*r[probes[i]]["per second"]/r[probes[i-1]]["per second"])
		}
		return slices.Min(steps)
	}}
}

// choose returns the rows of a list as 3,4; all for an empty one.
func choose(all []row, list string) ([]row, error) {
	if list == "" {
		return all, nil
	}
	var chosen []row
	for id := range strings.SplitSeq(list, ",") {
		n := len(chosen)
		for _, r := range all {
			if r.id == strings.TrimSpace(id) {
				chosen = append(chosen, r)
			}
		}
		if n == len(chosen) {
			return nil, fmt.Errorf("there is no row %q; there are %s", id, ids(all))
		}
	}
	return chosen, nil
}

func ids(all []row) string {
	var out []string
	for _, r := range all {
		if !slices.Contains(out, r.id) {
			out = append(out, r.id)
		}
	}
	return strings.Join(out, ", ")
}
