package main

import (
	"context"
	"net"
	"sync"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/feed"
	"github.com/tandemlog/tandem/services/storage/internal/rpc"
)

// control answers Follow alone, and as a master does: with what is readable, at the product's pace.
type control struct {
	rpc.Lineage

	log feed.Log
}

// OnFollow implements rpc.Lineage.
func (c control) OnFollow(ctx context.Context, _ epoch.FollowRequest, send func(epoch.FollowAnswer) error) error {
	first := epoch.FollowAnswer{Action: epoch.ActionStream, Readable: c.log.Readable().Load(), End: c.log.End()}
	if err := send(first); err != nil {
		return err
	}
	return feed.Tell(ctx, c.log, first, send)
}

// serveControl serves control streams until ctx ends.
func serveControl(ctx context.Context, ln net.Listener, log feed.Log) error {
	s, err := grpcx.NewServer(grpcx.ServerOptions{DrainTimeout: time.Second})
	if err != nil {
		return err
	}
	storagev1.RegisterReplicationServiceServer(s, rpc.NewReplication(control{log: log}))
	return s.Serve(ctx, ln)
}

// follow lets readers of a slave's log see what the master's control stream at addr says, until ctx ends; without an addr
// all that is written. The first answer has come when it returns.
func (n *node) follow(ctx context.Context, addr string, running *sync.WaitGroup) error {
	learned := watermark.New(watermark.Max)
	if addr != "" {
		d, err := grpcx.NewDialer(grpcx.ClientOptions{})
		if err != nil {
			return err
		}
		master := rpc.NewPeers(d.Dial)
		answers, err := master.Follow(ctx, addr, epoch.FollowRequest{})
		if err != nil {
			return err
		}
		first, err := answers.Recv()
		if err != nil {
			return err
		}
		learned = watermark.New(first.Readable)
		running.Go(func() {
			defer master.Close() //nolint:errcheck // nobody uses it any more
			for a, err := answers.Recv(); err == nil; a, err = answers.Recv() {
				learned.Advance(a.Readable)
			}
		})
	}
	running.Go(func() { feed.Apply(ctx, n.log, learned) })
	return nil
}
