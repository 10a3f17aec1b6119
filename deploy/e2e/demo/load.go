package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"

	"github.com/tandemlog/tandem/pkg/sleep"
)

// topic is where the demo's own messages go.
const topic = "TandemDemo"

// book remembers every message that was sent and what the cluster said.
type book struct {
	mu       sync.Mutex
	statuses map[string]int
	ok       map[int]*storagev1.PutResult // PUT_OK, by number
	unknown  map[int]bool                 // not answered PUT_OK: the message may be there or not
}

func newBook() *book {
	return &book{statuses: map[string]int{}, ok: map[int]*storagev1.PutResult{}, unknown: map[int]bool{}}
}

func (l *book) note(n int, r *storagev1.PutResult, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.unknown[n] = true
		l.statuses["no answer"]++
	case r.GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK:
		l.ok[n] = r
		l.statuses["PUT_OK"]++
	default:
		l.unknown[n] = true
		l.statuses[strings.TrimPrefix(r.GetStatus().String(), "PUT_STATUS_")]++
	}
}

func (l *book) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ok)
}

// takeStatuses returns the statuses since the last call.
func (l *book) takeStatuses() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, k := range []string{"PUT_OK", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"} {
		if n := l.statuses[k]; n > 0 {
			out = append(out, fmt.Sprintf("%s %d", k, n))
		}
		delete(l.statuses, k)
	}
	for k, n := range l.statuses {
		out = append(out, fmt.Sprintf("%s %d", k, n))
	}
	clear(l.statuses)
	return strings.Join(out, ", ")
}

// load puts messages from several workers until it is stopped.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

const workers = 8

var nextNumber atomic.Int64

func startLoad(ctx context.Context, c storagev1.MessageServiceClient, l *book) *load {
	ctx, cancel := context.WithCancel(ctx)
	ld := &load{cancel: cancel}
	for range workers {
		ld.wg.Go(func() {
			for ctx.Err() == nil {
				n := int(nextNumber.Add(1))
				r, err := putOne(ctx, c, n)
				if err != nil && ctx.Err() != nil {
					// The load was stopped while the call ran: its outcome is not known.
					l.note(n, nil, err)
					return
				}
				l.note(n, r.GetResult(), err)
				if err != nil {
					sleep.For(ctx, 20*time.Millisecond) // else it hammers a node that is down
				}
			}
		})
	}
	return ld
}

func putOne(ctx context.Context, c storagev1.MessageServiceClient, n int) (*storagev1.PutResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return c.Put(ctx, &storagev1.PutRequest{Message: &storagev1.Message{
		Topic: topic, Body: body(n), Keys: []string{"n" + strconv.Itoa(n)}, Tag: "demo",
	}})
}

func body(n int) []byte { return fmt.Appendf(nil, "message %d %s", n, strings.Repeat("x", 180)) }

// messageNumber is the number of the message whose body this is.
func messageNumber(b []byte) (int, error) {
	var n int
	if _, err := fmt.Sscanf(string(b), "message %d", &n); err != nil || !bytes.Equal(b, body(n)) {
		return 0, fmt.Errorf("a body that nobody sent: %.40q", b)
	}
	return n, nil
}

func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}
