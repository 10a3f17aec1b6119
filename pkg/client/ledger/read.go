package ledger

import (
	"context"
	"errors"
	"io"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// Get reads one entry.
func (c *Client) Get(ctx context.Context, index int64, how Consistency) (*Entry, error) {
	var entry *Entry
	err := c.read(ctx, func(ctx context.Context, n *group.Node) error {
		resp, err := n.Ledger.Get(ctx, &ledgerv1.GetRequest{Index: index, Consistency: how})
		entry = resp.GetEntry()
		return err
	})
	return entry, err
}

// GetRange reads entries from an index on; see the request.
func (c *Client) GetRange(ctx context.Context, req *ledgerv1.GetRangeRequest) (resp *ledgerv1.GetRangeResponse, err error) {
	err = c.read(ctx, func(ctx context.Context, n *group.Node) (err error) {
		resp, err = n.Ledger.GetRange(ctx, req)
		return err
	})
	return resp, err
}

// Bounds tells what there is to read.
func (c *Client) Bounds(ctx context.Context, how Consistency) (b *Bounds, err error) {
	err = c.read(ctx, func(ctx context.Context, n *group.Node) (err error) {
		b, err = n.Ledger.GetBounds(ctx, &ledgerv1.GetBoundsRequest{Consistency: how})
		return err
	})
	return b, err
}

// read asks the node that answered last, and then the others in turn, until one answers or the deadline passes.
func (c *Client) read(ctx context.Context, f func(context.Context, *group.Node) error) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	strangers := 0 // that answered one after the other
	for i := 0; ; i++ {
		n, err := c.readNode()
		if err != nil {
			return err
		}
		one, cancel := context.WithTimeout(ctx, c.o.TryTimeout)
		err = nodes.Explain(f(one, n), n.Addr)
		cancel()
		if err == nil || !elsewhere(err) {
			return err
		}
		c.turn(n)
		if strangers++; !nodes.Stranger(err) {
			strangers = 0
		}
		if strangers == len(c.nodes.Addresses()) {
			return err
		}
		if round := (i + 1) / len(c.nodes.Addresses()); (i+1)%len(c.nodes.Addresses()) == 0 {
			deadline, _ := ctx.Deadline() // bounded gave it one
			pause := min(nodes.Backoff(round-1), group.LongestPause)
			if time.Until(deadline) <= pause {
				return err
			}
			c.nodes.Reconnect()
			if !sleep.For(ctx, pause) {
				return err
			}
		} else if ctx.Err() != nil {
			return err
		}
	}
}

// elsewhere says whether another node, or the same one later, may answer what this one did not.
func elsewhere(err error) bool {
	if attempt.Refused(err) {
		return nodes.Stranger(err)
	}
	switch errdefs.ClassOf(err) {
	case errdefs.Unavailable, errdefs.ResourceExhausted, errdefs.DeadlineExceeded, errdefs.Aborted, errdefs.DataLoss, errdefs.Internal, errdefs.Unknown:
		return true
	case errdefs.FailedPrecondition:
		return errdefs.ReasonOf(err) == ErrNotLeader.Reason
	default:
		return !attempt.Answered(err) && errdefs.ClassOf(err) == errdefs.Canceled
	}
}

func (c *Client) readNode() (*group.Node, error) {
	c.mu.Lock()
	addr := c.nodes.Addresses()[c.reader]
	c.mu.Unlock()
	return c.nodes.Get(addr)
}

// turn goes on to the next address, unless another call has done so.
func (c *Client) turn(from *group.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if all := c.nodes.Addresses(); all[c.reader] == from.Addr {
		c.reader = (c.reader + 1) % len(all)
	}
}

// TailOptions say what Tail follows.
type TailOptions struct {
	// From is the first index; -1: the one behind the last committed entry.
	From int64
	// Consistency of what it begins with.
	Consistency Consistency
	// OnRetry is told why the stream broke and how long Tail pauses before the next; may be nil.
	OnRetry func(err error, pause time.Duration)
}

// Tail calls f with each committed entry, old and new, and goes on over outages: a broken stream is made anew, on the next address,
// from the entry after the last one. What ends it:
//   - f returns an error, or ctx ends: that is its result.
//   - A node refuses: the request is wrong, the caller may not, or an entry is larger than this client takes.
//   - No address could be reached in the first round, or none could read there. Once a node has taken the stream, be it that no entry
//     came, Tail goes on until one takes it again.
func (c *Client) Tail(ctx context.Context, o TailOptions, f func(*Entry) error) error {
	if o.From < 0 {
		b, err := c.Bounds(ctx, o.Consistency)
		if err != nil {
			return err
		}
		o.From = b.GetCommittedIndex() + 1
	}
	t := &tail{o: o, f: f, next: o.From}
	var first error // of all addresses, while none has answered
	for try := 0; ; try++ {
		n, err := c.readNode()
		if err != nil {
			return err
		}
		progress, err := t.follow(ctx, n)
		switch {
		case t.fErr != nil:
			return t.fErr
		case ctx.Err() != nil:
			return ctx.Err()
		case progress:
			try = 0
		}
		c.turn(n)
		if t.strangers++; !nodes.Stranger(err) {
			t.strangers = 0
		}
		if !elsewhere(err) || t.connected && t.strangers == len(c.nodes.Addresses()) {
			return err
		}
		if !t.connected {
			if first = nodes.Join(first, err); try+1 >= len(c.nodes.Addresses()) {
				return first
			}
			continue
		}
		pause := nodes.Backoff(try)
		if o.OnRetry != nil {
			o.OnRetry(err, pause)
		}
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

type tail struct {
	o         TailOptions
	f         func(*Entry) error
	fErr      error
	next      int64
	connected bool // a node has taken the stream once
	strangers int  // addresses in a row where it is another service that answers
}

// taken reports whether a node has taken a stream that ended with err, be it that no entry came: that it breaks, or that the node
// stops, says nothing against the request.
func taken(err error) bool {
	return !attempt.Answered(err) && !nodes.Stranger(err) || errdefs.ClassOf(err) == errdefs.Unavailable
}

// follow reads one stream to its end; progress says whether an entry came.
func (t *tail) follow(ctx context.Context, n *group.Node) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.Ledger.Tail(ctx, &ledgerv1.TailRequest{Index: t.next, Consistency: t.o.Consistency})
	if err != nil {
		return false, nodes.Explain(err, n.Addr)
	}
	for {
		resp, err := stream.Recv()
		t.connected = t.connected || taken(grpcx.FromStatus(err))
		if errors.Is(err, io.EOF) {
			return progress, errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the node ended the stream").With("address", n.Addr)
		}
		if err != nil {
			return progress, nodes.Explain(err, n.Addr)
		}
		for _, e := range resp.GetEntries() {
			if e.GetIndex() != t.next {
				return progress, errdefs.New(errdefs.DataLoss, "TAIL_OUT_OF_STEP", "the node sent another entry than the next one").
					With("want", t.next).With("got", e.GetIndex()).With("address", n.Addr)
			}
			t.next++
			progress = true
			if t.fErr = t.f(e); t.fErr != nil {
				return progress, nil
			}
		}
	}
}
