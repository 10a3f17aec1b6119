package node_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

type nobody struct{}

func (nobody) Send([]raft.Message) {}

// BenchmarkPropose appends entries of 1 KiB to a group of one, each synced before its answer: what 64 callers share of a
// write and a sync.
func BenchmarkPropose(b *testing.B) {
	log, r, err := entrylog.Open(vfs.OS(), b.TempDir(), entrylog.Options{DataFileSize: 512 << 20, IndexFileSize: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	if err := log.Bootstrap(); err != nil {
		b.Fatal(err)
	}
	r.HardState = raft.Bootstrap()
	n, err := node.New(node.Options{Core: consensus.DefaultConfig("n0", []raft.NodeID{"n0"}, rand.NewPCG(1, 2))}, r.Start, log, nobody{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	if err := n.Committed().Wait(ctx, 0); err != nil { // the no-op
		b.Fatal(err)
	}
	body := string(make([]byte, 1000))
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := n.Propose(ctx, batchOf(body))
			if err == nil {
				err = p.Wait(ctx)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
}
