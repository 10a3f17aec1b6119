package registry

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// consumers makes a table of n offsets: four queues of each group in each topic.
func consumers(t testing.TB, n int) *table.Table {
	t.Helper()
	b := table.NewBuilder(entry.ConsumerOffsets)
	for i := range n / 4 {
		var queues []entry.QueueOffset
		for q := range int32(4) {
			queues = append(queues, entry.QueueOffset{Queue: q, Offset: int64(i) * 1000})
		}
		must(t, b.Add(table.Entry{Key: fmt.Sprintf("some-topic-name-%07d@some-group-name", i), Value: entry.NewOffsets(queues...)}))
	}
	return b.Table(entry.Version{Counter: 1, Timestamp: 1}, table.FormFull, nil)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func sizes() []int { return []int{62_500, 250_000, 1_000_000} }

// BenchmarkMemory is what a table takes, in bytes of heap for each offset or topic.
func BenchmarkMemory(b *testing.B) {
	measure := func(b *testing.B, n int, f func() *table.Table) {
		for range b.N {
			before := heap()
			own := f()
			b.ReportMetric(float64(heap()-before)/float64(n), "B/entry")
			runtime.KeepAlive(own)
		}
	}
	for _, n := range sizes() {
		b.Run(fmt.Sprintf("offsets=%d", n), func(b *testing.B) { measure(b, n, func() *table.Table { return consumers(b, n) }) })
		b.Run(fmt.Sprintf("topics=%d", n/10), func(b *testing.B) {
			measure(b, n/10, func() *table.Table {
				build := table.NewBuilder(entry.Topics)
				for i := range n / 10 {
					name := fmt.Sprintf("some-topic-name-%07d", i)
					must(b, build.Add(table.Entry{Key: name, Value: entry.NewTopic(name)}))
				}
				return build.Table(entry.Version{Counter: 1}, table.FormFull, nil)
			})
		})
	}
}

// BenchmarkWhole is what it costs to marshal, to read and to save a whole table.
func BenchmarkWhole(b *testing.B) {
	for _, n := range sizes() {
		own := consumers(b, n)
		chunks := slices.Collect(chunk.Split(own.Full()))
		text := jsonfile.AppendFile(nil, own)
		run := func(name string, bytes int, f func()) {
			b.Run(fmt.Sprintf("%s/offsets=%d", name, n), func(b *testing.B) {
				for range b.N {
					f()
				}
				b.ReportMetric(float64(bytes)/float64(n), "B/entry")
			})
		}
		total := 0
		for _, c := range chunks {
			total += len(c)
		}
		run("chunks-out", total, func() {
			for c := range chunk.Split(own.Full()) {
				runtime.KeepAlive(c)
			}
		})
		run("chunks-in", total, func() {
			d, err := assemble(entry.ConsumerOffsets, chunks)
			must(b, err)
			_, err = d.Table()
			must(b, err)
		})
		run("json-out", len(text), func() { jsonfile.AppendFile(nil, own) })
		run("json-in", len(text), func() {
			_, err := jsonfile.Decode(entry.ConsumerOffsets, text)
			must(b, err)
		})
	}
}

// BenchmarkSave is one round of 1,000 commits into a large table: record, sync, publish, and the delta for a slave.
func BenchmarkSave(b *testing.B) {
	for _, n := range sizes() {
		b.Run(fmt.Sprintf("offsets=%d", n), func(b *testing.B) {
			r, err := Open(vfs.OS(), b.TempDir(), Options{})
			must(b, err)
			defer r.Close()
			_, err = r.Join(b.Context(), consumers(b, n))
			must(b, err)
			b.ResetTimer()
			for i := range b.N {
				have := r.Snapshot(entry.ConsumerOffsets).Version()
				batch := make([]table.Commit, 1000)
				for j := range batch {
					at := (i*1000 + j) * 7919 % (n / 4)
					batch[j] = table.Commit{Topic: fmt.Sprintf("some-topic-name-%07d", at), Group: "some-group-name", Offset: int64(1e9 + i)}
				}
				commit(b, r, batch...)
				reply, err := r.Fetch(entry.ConsumerOffsets, have, 0)
				must(b, err)
				if bytes := 0; !reply.Full {
					for c := range reply.Chunks {
						bytes += len(c)
					}
					b.ReportMetric(float64(bytes), "B/delta")
				}
			}
			b.ReportMetric(float64(b.N*1000)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkCommitOffsets is the rate at which commits of many consumers are gathered.
func BenchmarkCommitOffsets(b *testing.B) {
	r, err := Open(vfs.OS(), b.TempDir(), Options{})
	must(b, err)
	defer r.Close()
	_, err = r.Join(b.Context(), consumers(b, 250_000))
	must(b, err)
	var n atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		batch := make([]table.Commit, 1)
		for pb.Next() {
			i := n.Add(1)
			batch[0] = table.Commit{Topic: "some-topic-name-0000123", Group: "some-group-name", Queue: int32(i % 4), Offset: 1e9 + i}
			if _, err := r.CommitOffsets(b.Context(), batch, false); err != nil {
				b.Error(err)
			}
		}
	})
}
