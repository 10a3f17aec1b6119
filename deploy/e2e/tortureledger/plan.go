package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// kind of a fault.
type kind string

const (
	kill     kind = "kill -9"
	killTwo  kind = "kill -9 of two with"
	killAll  kind = "kill -9 of all with"
	freeze   kind = "SIGSTOP"
	usurp    kind = "SIGSTOP until another leads" // then it finds itself deposed, with a tail of its own
	cutOff   kind = "cut links of"                // connections end
	isolate  kind = "hold links of"               // no byte passes, no connection ends
	deafen   kind = "hold links to"               // one way
	mute     kind = "hold links from"             // the other
	slow     kind = "delay links of"
	transfer kind = "transfer to"
	fullDisk kind = "full disk of n0" // whatever its role
)

// fault is one step of a plan. Its target is a role at the time: 0 the leader, 1 and 2 the others.
type fault struct {
	kind   kind
	role   int
	at     time.Duration // from the start of the window
	lasts  time.Duration
	amount int // milliseconds of a delay
}

func (f fault) String() string {
	who := [copies]string{"leader", "follower 1", "follower 2"}[f.role]
	return fmt.Sprintf("%v %s %s for %v (%d)", f.at, f.kind, who, f.lasts, f.amount)
}

// plan is the faults of a window, all of them decided before it starts.
type plan struct {
	lasts  time.Duration
	faults []fault
}

// newPlan makes the plan of a window: the same for the same seed.
func newPlan(seed uint64, window int) plan {
	r := rand.New(rand.NewPCG(seed, uint64(window))) //nolint:gosec // replayable
	weighted := []kind{
		kill, kill, kill, kill, killTwo, killAll, freeze, freeze, usurp, usurp, usurp, cutOff, cutOff, isolate, isolate, isolate,
		deafen, deafen, mute, mute, slow, transfer, transfer, fullDisk,
	}
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	p := plan{lasts: ms(3000, 8000)}
	for range 2 + r.IntN(6) {
		f := fault{kind: weighted[r.IntN(len(weighted))], lasts: ms(50, 2500), amount: r.IntN(60)}
		if r.IntN(2) > 0 { // the leader, more often than not
			f.role = 1 + r.IntN(copies-1)
		}
		if f.kind == transfer && f.role == 0 {
			f.role = 1
		}
		f.at = time.Duration(r.Int64N(int64(p.lasts - 500*time.Millisecond))).Round(time.Millisecond)
		p.faults = append(p.faults, f)
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	return p
}

func (p plan) String() string {
	lines := []string{fmt.Sprintf("%v:", p.lasts)}
	for _, f := range p.faults {
		lines = append(lines, "     "+f.String())
	}
	return strings.Join(lines, "\n")
}
