package sums

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Limits, bytes and stretches.
const (
	minStretch = 4 << 10
	maxStretch = 64 << 20
	maxSums    = 1 << 16
	piece      = 1 << 20
	tailSize   = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a table

// ErrRange is a range that the log does not have.
var ErrRange = errdefs.New(errdefs.OutOfRange, "RANGE_OUTSIDE_LOG", "the range is not inside the log")

// Log is what is summed. View returns bytes of one file from offset; release is called exactly once.
type Log interface {
	FirstOffset() int64
	End() int64
	View(offset int64, limit int) (b []byte, release func(), err error)
}

// Sums of one log.
type Sums struct{ log Log }

// New makes the sums of log.
func New(log Log) Sums { return Sums{log} }

// Range returns the CRC-32C of each stretch of [from, to), at most 65,536 of them, and how far they go.
func (s Sums) Range(ctx context.Context, from, to, stretch int64) ([]uint32, int64, error) {
	if stretch < minStretch || stretch > maxStretch {
		return nil, 0, errdefs.Invalid("stretch_size", "%d is not within %d and %d", stretch, minStretch, maxStretch)
	}
	if first, end := s.log.FirstOffset(), s.log.End(); from < first || to > end || from > to {
		return nil, 0, ErrRange.With("from", from).With("to", to).With("first", first).With("end", end)
	}
	to = min(to, from+maxSums*stretch)
	sums := make([]uint32, 0, (to-from+stretch-1)/stretch)
	for at := from; at < to; {
		next := min(to, at+stretch)
		sum, err := s.sum(ctx, at, next)
		if err != nil {
			return nil, 0, err
		}
		sums, at = append(sums, sum), next
	}
	return sums, to, nil
}

// sum returns the CRC-32C of [from, to).
func (s Sums) sum(ctx context.Context, from, to int64) (uint32, error) {
	sum := uint32(0)
	for from < to {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		b, release, err := s.log.View(from, int(min(to-from, piece)))
		if err != nil {
			return 0, fmt.Errorf("sum log: %w", err)
		}
		n := len(b)
		sum = crc32.Update(sum, castagnoli, b)
		release()
		if n == 0 {
			return 0, ErrRange.With("from", from).With("to", to).With("end", s.log.End())
		}
		from += int64(n)
	}
	return sum, nil
}

// Last returns the checksum of the last stretch of [first, end), and its size, bytes; a Follow carries it.
func (s Sums) Last(ctx context.Context, first, end int64) (sum uint32, size int64, err error) {
	size = min(tailSize, end-first)
	sum, err = s.sum(ctx, end-size, end)
	return sum, size, err
}

// Tail compares the last stretch of a slave with the same bytes here.
func (s Sums) Tail(ctx context.Context, r epoch.FollowRequest) (epoch.Tail, error) {
	from := r.End - r.TailSize
	if r.TailSize <= 0 || r.TailSize > maxStretch || from < s.log.FirstOffset() || r.End > s.log.End() {
		return epoch.TailUnknown, nil
	}
	switch sum, err := s.sum(ctx, from, r.End); {
	case err != nil:
		return epoch.TailUnknown, err
	case sum != r.TailChecksum:
		return epoch.TailDiffers, nil
	}
	return epoch.TailEqual, nil
}

// Ask returns a peer's checksums of a range and how far they go.
type Ask func(ctx context.Context, from, to, stretch int64) (sums []uint32, upTo int64, err error)

// Compare returns the offset below which [from, to) is the same here and at who is asked.
func (s Sums) Compare(ctx context.Context, from, to int64, ask Ask) (int64, error) {
	c := epoch.NewCompare(from, to)
	for {
		from, to, stretch, more := c.Next()
		if !more {
			return c.Equal(), nil
		}
		mine, _, err := s.Range(ctx, from, to, stretch)
		if err != nil {
			return 0, err
		}
		theirs, upTo, err := ask(ctx, from, to, stretch)
		if err != nil {
			return 0, fmt.Errorf("ask for checksums: %w", err)
		}
		if err := c.Step(mine, theirs, upTo); err != nil {
			return 0, err //nolint:wrapcheck // a sentinel
		}
	}
}
