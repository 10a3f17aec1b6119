package entrylog_test

import (
	"fmt"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// BenchmarkAppend writes batches of 1 KiB entries, with and without a sync each.
func BenchmarkAppend(b *testing.B) {
	for _, flush := range []bool{false, true} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("sync=%v/batch=%d", flush, n), func(b *testing.B) {
				l, batch := benchLog(b, n)
				for b.Loop() {
					for i := range batch {
						batch[i].Index += raft.Index(n)
					}
					if err := l.Append(batch); err != nil {
						b.Fatal(err)
					}
					if flush {
						if err := l.Sync(); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.SetBytes(int64(n) << 10)
			})
		}
	}
}

// BenchmarkView reads 128 KiB as a push does, checksums included.
func BenchmarkView(b *testing.B) {
	l, batch := benchLog(b, 1000)
	for range 10 {
		for i := range batch {
			batch[i].Index += 1000
		}
		if err := l.Append(batch); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(128 << 10)
	for b.Loop() {
		n, size := l.Extent(5000, l.Last(), 4096, 128<<10)
		_, m, release, err := l.View(5000, n, size)
		if err != nil || m != n {
			b.Fatal(m, err)
		}
		release()
	}
}

// benchLog makes a log and a batch whose indexes are to be raised by n before each append.
func benchLog(b *testing.B, n int) (*entrylog.Log, []raft.Entry) {
	b.Helper()
	l, _, err := entrylog.Open(vfs.OS(), b.TempDir(), entrylog.Options{DataFileSize: 256 << 20, IndexFileSize: 8 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	batch := make([]raft.Entry, n)
	for i := range batch {
		p := entry.New(0, make([]byte, 1024-entry.HeaderSize))
		batch[i] = raft.Entry{Index: raft.Index(i - n), Term: 1, Size: len(p), Payload: p}
	}
	return l, batch
}
