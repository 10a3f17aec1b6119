package role

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Limits of RangeChecksum, bytes and stretches.
const (
	minStretch = 4 << 10
	maxStretch = 64 << 20
	maxSums    = 1 << 16
	sumPiece   = 1 << 20
	tailSize   = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // a table

// ErrRange: a range that the log does not have.
var ErrRange = errdefs.New(errdefs.OutOfRange, "RANGE_OUTSIDE_LOG", "the range is not inside the log")

// OnRangeChecksum returns the CRC-32C of each stretch of [from, to), at most 65,536 of them, and how far they go.
func (m *Manager) OnRangeChecksum(ctx context.Context, from, to, stretch int64) ([]uint32, int64, error) {
	if stretch < minStretch || stretch > maxStretch {
		return nil, 0, errdefs.Invalid("stretch_size", "%d is not within %d and %d", stretch, minStretch, maxStretch)
	}
	if first, end := m.log.FirstOffset(), m.log.End(); from < first || to > end || from > to {
		return nil, 0, ErrRange.With("from", from).With("to", to).With("first", first).With("end", end)
	}
	to = min(to, from+maxSums*stretch)
	sums := make([]uint32, 0, (to-from+stretch-1)/stretch)
	for at := from; at < to; {
		next := min(to, at+stretch)
		sum, err := m.sum(ctx, at, next)
		if err != nil {
			return nil, 0, err
		}
		sums, at = append(sums, sum), next
	}
	return sums, to, nil
}

// sum returns the CRC-32C of [from, to).
func (m *Manager) sum(ctx context.Context, from, to int64) (uint32, error) {
	sum := uint32(0)
	for from < to {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		b, release, err := m.log.View(from, int(min(to-from, sumPiece)))
		if err != nil {
			return 0, fmt.Errorf("sum log: %w", err)
		}
		n := len(b)
		sum = crc32.Update(sum, castagnoli, b)
		release()
		if n == 0 {
			return 0, ErrRange.With("from", from).With("to", to).With("end", m.log.End())
		}
		from += int64(n)
	}
	return sum, nil
}

// tail compares the last stretch of a slave with the same bytes here.
func (m *Manager) tail(ctx context.Context, r epoch.FollowRequest) (epoch.Tail, error) {
	from := r.End - r.TailSize
	if r.TailSize <= 0 || r.TailSize > maxStretch || from < m.log.FirstOffset() || r.End > m.log.End() {
		return epoch.TailUnknown, nil
	}
	switch sum, err := m.sum(ctx, from, r.End); {
	case err != nil:
		return epoch.TailUnknown, err
	case sum != r.TailChecksum:
		return epoch.TailDiffers, nil
	}
	return epoch.TailEqual, nil
}

// compare finds by checksums how far this log and that of addr are equal in [from, to).
func (m *Manager) compare(ctx context.Context, addr string, from, to int64) (int64, error) {
	m.slog.Info("comparing logs", "upstream", addr, "from", from, "to", to)
	c := epoch.NewCompare(from, to)
	for {
		from, to, stretch, more := c.Next()
		if !more {
			m.slog.Info("logs compared", "upstream", addr, "equal_to", c.Equal())
			return c.Equal(), nil
		}
		mine, _, err := m.OnRangeChecksum(ctx, from, to, stretch)
		if err != nil {
			return 0, err
		}
		theirs, upTo, err := m.theirSums(ctx, addr, from, to, stretch)
		if err != nil {
			return 0, err
		}
		if err := c.Step(mine, theirs, upTo); err != nil {
			return 0, err //nolint:wrapcheck // a sentinel
		}
	}
}

func (m *Manager) theirSums(ctx context.Context, addr string, from, to, stretch int64) ([]uint32, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.SumTimeout)
	defer cancel()
	sums, upTo, err := m.peers.RangeChecksum(ctx, addr, from, to, stretch)
	if err != nil {
		return nil, 0, fmt.Errorf("ask for checksums: %w", err)
	}
	return sums, upTo, nil
}
