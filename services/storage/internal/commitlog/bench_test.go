package commitlog_test

import (
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
)

// benchLog opens a log that starts anew before the disk is full of it.
func benchLog(b *testing.B, o commitlog.Options) (l *commitlog.Log, renew func()) {
	b.Helper()
	o.FileSize = 64 << 20
	l, _, err := commitlog.Open(vfs.OS(), b.TempDir(), o)
	must(b, err)
	stop := run(b, l)
	b.Cleanup(func() {
		must(b, stop())
		must(b, l.Close(true))
	})
	return l, func() {
		if l.End() > 512<<20 {
			b.StopTimer()
			must(b, l.Reset(0))
			b.StartTimer()
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{200, 32 << 10} {
		for name, o := range map[string]commitlog.Options{"async": {Ahead: true}, "sync": {Ahead: true, SyncFlush: true}} {
			b.Run(name+"/"+map[int]string{200: "200B", 32 << 10: "32KiB"}[size], func(b *testing.B) {
				l, renew := benchLog(b, o)
				batch := &commitlog.Batch{Records: [][]byte{sized(0, size)}, Cursor: commitlog.NewCursor(0)}
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := l.Append(batch); err != nil {
						b.Fatal(err)
					}
					renew()
				}
			})
		}
	}
}

// BenchmarkAppendRaw writes bursts of 32 frames of 32 KiB, as a slave gathers them.
func BenchmarkAppendRaw(b *testing.B) {
	l, renew := benchLog(b, commitlog.Options{})
	bodies := make([][]byte, 32)
	for i := range bodies {
		bodies[i] = make([]byte, 32<<10)
	}
	b.SetBytes(32 * 32 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.AppendRaw(l.End(), bodies); err != nil {
			b.Fatal(err)
		}
		renew()
	}
}
