package link_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

// shrinking has less of the log when it is asked again, in its file or in memory alone.
type shrinking struct {
	*files
	inMemory bool
}

func (s *shrinking) FileAt(offset int64, limit int) (uintptr, int64, int, func(), error) {
	fd, pos, n, release, err := s.files.FileAt(offset, limit)
	if s.asked.Load() > 1 {
		s.data = s.data[:100]
		if s.inMemory {
			release()
			return 0, 0, 0, nil, nil
		}
		n = 100
	}
	return fd, pos, n, release, err
}

// TestALogThatShrinksUnderAFrame: what its header has promised is not filled up with other bytes.
func TestALogThatShrinksUnderAFrame(t *testing.T) {
	for _, inMemory := range []bool{false, true} {
		data := numbered(32 << 20) // more than the sockets hold
		f := fileOf(t, data)
		a, _ := tcpPair(t)
		src := &shrinking{&files{source: source{data: data, fileSize: 1 << 30}, f: f}, inMemory}
		var count link.Counters
		w := link.NewSender(a, src, 0, len(data), 400*time.Millisecond, &count)
		err := w.Send(int64(len(data)))
		if !errors.Is(err, link.ErrHistoryGone) || w.Pos() != 0 || src.leases.Load() != 0 {
			t.Errorf("in memory %v: %v, at %d with %d leases", inMemory, err, w.Pos(), src.leases.Load())
		}
	}
}
