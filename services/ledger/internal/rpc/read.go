package rpc

import (
	"bytes"
	"context"
	"math"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/once"
)

const (
	defaultEntries = 1024
	maxEntries     = 16 << 10
	defaultBytes   = 1 << 20
	// entryRoom is what an entry takes in a reply besides its body, bytes; replyRoom what the reply takes besides its entries.
	entryRoom = 64
	replyRoom = 4 << 10
)

// Errors of reads.
var (
	errNotCommitted = errdefs.New(errdefs.OutOfRange, "INDEX_NOT_COMMITTED", "no entry of this index is committed")
	errPurged       = errdefs.New(errdefs.OutOfRange, "INDEX_OUT_OF_RANGE", "the log does not reach back to this index")
)

// Get implements LedgerService.
func (s *Ledger) Get(ctx context.Context, req *ledgerv1.GetRequest) (*ledgerv1.GetResponse, error) {
	if req.GetIndex() < 0 {
		return nil, s.fail(errdefs.Invalid("index", "%d is negative", req.GetIndex()))
	}
	committed, err := s.readable(ctx, req.GetConsistency())
	if err == nil && raft.Index(req.GetIndex()) > committed {
		err = errNotCommitted.WithField("index").With("index", req.GetIndex()).With("committed", committed)
	}
	if err != nil {
		return nil, s.fail(err)
	}
	r := reading{next: raft.Index(req.GetIndex()), to: committed, entries: 1, bytes: math.MaxInt32}
	if err := s.read(&r); err != nil {
		return nil, s.fail(err)
	}
	return &ledgerv1.GetResponse{Entry: r.out[0], CommittedIndex: int64(committed)}, nil
}

// GetRange implements LedgerService.
func (s *Ledger) GetRange(ctx context.Context, req *ledgerv1.GetRangeRequest) (*ledgerv1.GetRangeResponse, error) {
	r, err := s.reading(req.GetIndex(), 0, req.GetMaxEntries(), req.GetMaxBytes())
	if err != nil {
		return nil, s.fail(err)
	}
	if r.to, err = s.readable(ctx, req.GetConsistency()); err == nil {
		err = s.read(&r)
	}
	if err != nil {
		return nil, s.fail(err)
	}
	return &ledgerv1.GetRangeResponse{
		Entries: r.out, NextIndex: int64(r.next), FirstIndex: int64(s.log.First()), CommittedIndex: int64(r.to),
	}, nil
}

// Tail implements LedgerService.
func (s *Ledger) Tail(req *ledgerv1.TailRequest, stream grpc.ServerStreamingServer[ledgerv1.TailResponse]) error {
	ctx := stream.Context()
	r, err := s.reading(req.GetIndex(), int64(raft.NoIndex), req.GetMaxEntries(), req.GetMaxBytes())
	if err != nil {
		return s.fail(err)
	}
	if r.to, err = s.readable(ctx, req.GetConsistency()); err != nil {
		return s.fail(err)
	}
	if r.next == raft.NoIndex {
		r.next = r.to + 1
	}
	for {
		for r.next <= r.to {
			if err := s.read(&r); err != nil {
				return s.fail(err)
			}
			if err := stream.Send(&ledgerv1.TailResponse{Entries: r.out, NextIndex: int64(r.next), CommittedIndex: int64(r.to)}); err != nil {
				return err
			}
			r.out = nil
		}
		mark, _ := s.reads.Committed()
		if err := mark.Wait(ctx, int64(r.next)); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return s.fail(err)
		}
		r.to = raft.Index(mark.Load())
	}
}

// reading is a read under way.
type reading struct {
	next, to raft.Index
	entries  int   // at most, of one answer
	bytes    int64 // at most, of one answer, but for its first entry
	out      []*ledgerv1.LedgerEntry
}

// reading checks the request of a read; least is the smallest index.
func (s *Ledger) reading(index, least int64, entries int32, bytes int64) (reading, error) {
	r := reading{next: raft.Index(index), entries: int(entries), bytes: bytes}
	switch {
	case index < least:
		return r, errdefs.Invalid("index", "%d is below %d", index, least)
	case entries < 0:
		return r, errdefs.Invalid("max_entries", "%d is negative", entries)
	case bytes < 0:
		return r, errdefs.Invalid("max_bytes", "%d is negative", bytes)
	}
	if r.entries == 0 {
		r.entries = defaultEntries
	}
	if r.bytes == 0 {
		r.bytes = defaultBytes
	}
	r.entries = min(r.entries, maxEntries)
	r.bytes = min(r.bytes, int64(s.limits.MaxReply)-replyRoom-int64(r.entries)*entryRoom)
	return r, nil
}

// read takes entries out of the log until an answer is full or there are no more.
func (s *Ledger) read(r *reading) error {
	room := r.bytes
	for r.next <= r.to && len(r.out) < r.entries && (room > 0 || len(r.out) == 0) {
		if first := s.log.First(); r.next < first {
			return errPurged.WithField("index").With("index", r.next).With("first", first)
		}
		b, _, release, err := s.log.View(r.next, min(r.entries-len(r.out), int(r.to-r.next)+1), max(room, 1))
		if err != nil {
			return err
		}
		before := len(r.out)
		r.out, err = appendEntries(r.out, b)
		size := int64(len(b))
		release()
		if err != nil {
			return err
		}
		if before > 0 && size > room { // a first entry of another file that does not fit any more
			r.out = r.out[:before]
			return nil
		}
		room -= size
		r.next += raft.Index(len(r.out) - before)
	}
	return nil
}

// appendEntries copies the entries that stand side by side in b.
func appendEntries(dst []*ledgerv1.LedgerEntry, b []byte) ([]*ledgerv1.LedgerEntry, error) {
	for len(b) > 0 {
		h, err := entry.ReadHeader(b) // the log has checked the rest
		if err != nil {
			return dst, err
		}
		dst = append(dst, entryOf(&h, b))
		b = b[h.Size:]
	}
	return dst, nil
}

func entryOf(h *entry.Header, b []byte) *ledgerv1.LedgerEntry {
	e := &ledgerv1.LedgerEntry{Index: int64(h.Index), Term: int64(h.Term)}
	if h.Kind() == raft.NoOp {
		e.NoOp = true
		return e
	}
	c := once.Read(h, b)
	e.Body, e.Channel = bytes.Clone(c.Body), c.Channel
	if c.Keyed {
		e.ClientId, e.Sequence = c.Key.Client[:], c.Key.Sequence
	}
	return e
}
