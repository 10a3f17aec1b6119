package store

import (
	"context"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// MaxBatch is the largest number of messages in a batch.
const MaxBatch = 4096

// PutBatch appends messages of one topic and queue, all or none, side by side in one file, and waits for all of them as
// one. Results are in the order of the messages; errors are as with Put, with the number of the message at fault.
func (s *Store) PutBatch(ctx context.Context, ms []Message, w Wait) ([]Result, error) {
	if err := s.checkBatch(ms); err != nil {
		return nil, err
	}
	sc := scratchPool.Get().(*scratch) //nolint:errcheck,forcetypeassert // the pool holds nothing else
	defer putScratch(sc)
	var p Pending
	results, err := s.encodeBatch(ctx, ms, sc, &p)
	if err != nil {
		return nil, err
	}
	if err := s.plan(ctx, &p, w, ms[0].Properties); err != nil {
		return nil, err
	}
	if err := s.append(ctx, &p, &sc.batch, ms[0].Topic); err != nil {
		return nil, err
	}
	r, err := s.Finish(ctx, &p)
	if err != nil {
		return nil, err
	}
	offset := r.Offset
	for i := range results {
		id := results[i].MessageID
		results[i] = r
		results[i].MessageID = id
		if r.Offset < 0 {
			continue
		}
		results[i].Offset, results[i].QueueOffset = offset, r.QueueOffset+int64(i)
		results[i].Size = int32(len(sc.batch.Records[i])) //nolint:gosec // bounded by Limits
		offset += int64(results[i].Size)
	}
	return results, nil
}

func (s *Store) checkBatch(ms []Message) error {
	if len(ms) == 0 || len(ms) > MaxBatch {
		return errdefs.Invalid("messages", "%d messages, a batch has 1 to %d", len(ms), MaxBatch)
	}
	total := 0
	for i := range ms {
		if ms[i].Topic != ms[0].Topic || ms[i].QueueID != ms[0].QueueID {
			return errdefs.Invalid("messages", "message %d is of another topic or queue than the first", i)
		}
		total += len(ms[i].Body)
	}
	if limit := s.maxBody(); total > limit {
		return errdefs.Invalid("messages", "%d bytes of bodies, a batch has %d at most", total, limit)
	}
	return nil
}

// encodeBatch encodes all messages into sc.rec and points sc.batch at the records.
func (s *Store) encodeBatch(ctx context.Context, ms []Message, sc *scratch, p *Pending) ([]Result, error) {
	results := make([]Result, len(ms))
	ends := make([]int, len(ms))
	sc.rec = sc.rec[:0]
	queue := ms[0].QueueID
	for i := range ms {
		m := ms[i]
		m.QueueID = queue
		if err := s.draft(ctx, &m, sc, p); err != nil {
			if e := errdefs.As(err); e != nil {
				return nil, e.With("message", i)
			}
			return nil, err
		}
		queue = sc.draft.QueueID // what the store chose for the first holds for all
		results[i].MessageID = p.MessageID
		sc.rec = message.Append(sc.rec, &sc.draft, s.o.AppendPropCRC)
		ends[i] = len(sc.rec)
	}
	sc.batch = commitlog.Batch{Records: make([][]byte, len(ms))}
	from := 0
	for i, end := range ends {
		sc.batch.Records[i] = sc.rec[from:end:end]
		from = end
	}
	return results, nil
}
