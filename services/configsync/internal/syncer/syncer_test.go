package syncer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

var errFaulted = errdefs.New(errdefs.Unavailable, "REGISTRY_FAULTED", "the disk failed, nothing is saved any more")

// ownTables are empty; they fail when told.
type ownTables struct{ faulted atomic.Bool }

func (*ownTables) Snapshot(k entry.Kind) *table.Table { return table.New(k) }
func (*ownTables) Whole(entry.Kind) error             { return nil }

func (t *ownTables) Fault() error {
	if t.faulted.Load() {
		return errFaulted
	}
	return nil
}

func (*ownTables) Follow(context.Context, *table.Delta, table.FollowOptions) (table.Report, error) {
	return table.Report{}, errors.New("nobody sends anything")
}

// faultedPeer leads, and answers that its disk has failed.
type faultedPeer struct {
	configsyncv1.ConfigSyncServiceClient
	asked *atomic.Int32
}

func (p faultedPeer) Check(context.Context, *configsyncv1.CheckRequest, ...grpc.CallOption) (*configsyncv1.CheckResponse, error) {
	return &configsyncv1.CheckResponse{Leading: true, Epoch: 1}, nil
}

func (p faultedPeer) Watch(context.Context, *configsyncv1.WatchRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[configsyncv1.WatchResponse], error) {
	p.asked.Add(1)
	return nil, errFaulted
}

// TestAPeersFaultIsNotTheOwn: a slave goes on asking a peer whose disk has failed, and ends when its own has.
func TestAPeersFaultIsNotTheOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var own ownTables
		var asked atomic.Int32
		s := New(Options{Peers: []string{"peer:1"}}, &own, func(string) (configsyncv1.ConfigSyncServiceClient, error) {
			return faultedPeer{asked: &asked}, nil
		})
		ended := make(chan error, 1)
		go func() { ended <- s.Follow(t.Context()) }()
		<-time.After(time.Minute)
		select {
		case err := <-ended:
			t.Fatalf("the slave has ended: %v", err)
		default:
		}
		if asked.Load() < 10 {
			t.Errorf("it asked %d times", asked.Load())
		}
		own.faulted.Store(true)
		if err := <-ended; !errors.Is(err, errFaulted) {
			t.Errorf("it ends with %v", err)
		}
	})
}
