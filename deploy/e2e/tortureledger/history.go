package main

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// fate is what a client was told.
type fate uint8

const (
	unknown fate = iota // it may have been carried out, now or later
	done
	refused // it was certainly not carried out
)

// op is one call of one client.
type op struct {
	client    int
	id        string // of an append; empty: a read
	call, ret time.Duration
	fate      fate
	index     int64   // append: where it stands. Read: the last entry that it shows, -1 when there is none
	shown     []entry // read: some of the entries up to there
}

// history is what the clients did in a window. Appends whose fate stays open are handed on to the next.
type history struct {
	mu   sync.Mutex
	ops  []op
	left int // calls that may still begin
}

// maxOps bounds a window: what porcupine searches at once.
const maxOps = 5000

func newHistory(carried []op) *history { return &history{ops: carried, left: maxOps - len(carried)} }

// begin asks for one more call.
func (h *history) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left--
	return h.left >= 0
}

func (h *history) add(o op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// verdict is what a window's check found.
type verdict struct {
	bad            []string
	checked        int  // operations in the linearization
	appends, reads int  // done
	lateOrLost     []op // appends of unknown fate that are not in the log yet
}

func (v *verdict) violation(format string, args ...any) {
	v.bad = append(v.bad, fmt.Sprintf(format, args...))
}

// searchTime bounds the search for a linearization.
const searchTime = 2 * time.Minute

// check holds a window against the log, which began it with `from` entries and ended at b.
func (h *history) check(b *book, from int64) *verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &verdict{}
	var all []porcupine.Operation
	for _, o := range h.ops {
		if o.id == "" {
			all = v.read(all, o, b)
		} else {
			all = v.append(all, o, b)
		}
	}
	v.checked = len(all)
	if len(v.bad) > 0 {
		return v
	}
	start, _ := b.count(from - 1)
	switch porcupine.CheckOperationsTimeout(logModel(start), all, searchTime) {
	case porcupine.Illegal:
		v.violation("the history of %d operations is not linearizable", len(all))
	case porcupine.Unknown:
		v.violation("no linearization of %d operations was found within %v", len(all), searchTime)
	case porcupine.Ok:
	}
	return v
}

// append checks an append against the log.
func (v *verdict) append(all []porcupine.Operation, o op, b *book) []porcupine.Operation {
	at, stands := b.at[o.id]
	switch {
	case o.fate == done && !stands:
		v.violation("append %s was acknowledged at %d, and is lost", o.id, o.index)
		return all
	case o.fate == done && at != o.index:
		v.violation("append %s was acknowledged at %d, and stands at %d", o.id, o.index, at)
		return all
	case o.fate == refused && stands:
		v.violation("append %s was refused, and stands at %d", o.id, at)
		return all
	case o.fate == refused:
		return all
	case !stands:
		v.lateOrLost = append(v.lateOrLost, o)
		return all
	}
	n, _ := b.count(at)
	ret := int64(o.ret)
	if o.fate == unknown {
		ret = math.MaxInt64
	} else {
		v.appends++
	}
	return append(all, porcupine.Operation{ClientId: o.client, Input: true, Output: n, Call: int64(o.call), Return: ret})
}

// read checks what a read showed against the log.
func (v *verdict) read(all []porcupine.Operation, o op, b *book) []porcupine.Operation {
	if o.fate != done {
		return all
	}
	n, ok := b.count(o.index)
	if !ok {
		v.violation("a read of client %d showed the log up to %d, it ends at %d", o.client, o.index, b.next()-1)
		return all
	}
	for _, e := range o.shown {
		if e.index > o.index || e.index < 0 || b.entries[e.index] != e {
			v.violation("a read of client %d showed %+v, which is not what stands there", o.client, e)
			return all
		}
	}
	v.reads++
	return append(all, porcupine.Operation{ClientId: o.client, Input: false, Output: n, Call: int64(o.call), Return: int64(o.ret)})
}

// logModel is a log as its clients see it. Its state is how many appends it holds, from start on; which they are, and in
// which order, was read from the log itself. An append (true) has the count that it makes, a read (false) the one it sees.
func logModel(start int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return start },
		Step: func(state, input, output any) (bool, any) {
			held, isAppend, n := state.(int), input.(bool), output.(int) //nolint:forcetypeassert,errcheck // as made above
			if isAppend {
				return n == held+1, n
			}
			return n == held, held
		},
	}
}
