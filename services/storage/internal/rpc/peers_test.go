package rpc_test

import (
	"errors"
	"io"
	"net"
	"reflect"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/rpc"
)

// TestPeersLoseNothing sends every message of the conversation between storages over a wire, with every field set.
func TestPeersLoseNothing(t *testing.T) {
	list := epoch.List{{Epoch: 1, Start: 0, ID: 11}, {Epoch: 3, Start: 500, ID: 1 << 63}}
	l := &lineage{
		heard: epoch.Heard{
			NodeID: 2, Epochs: list, Promise: epoch.Promise{Epoch: 4, ID: 9}, End: 1000, First: 100, Whole: true,
			Promised: true, OpenMaster: true, HAAddress: "h:1", FileSize: 4096, Empty: true,
		},
		answer: epoch.FollowAnswer{
			Action: epoch.ActionTruncate, Offset: 7, Reason: "R", Remedy: "do", Epochs: list, FileSize: 4096, FrameSize: 32768,
			Token: [16]byte{1, 2}, HAAddress: "h:1", Readable: 5, End: 9, First: 1, OpenMaster: true, Path: []int64{0, 3},
		},
	}
	promise := epoch.PromiseRequest{Cluster: "c", BrokerName: "b", NodeID: 1, Reign: epoch.Promise{Epoch: 4, ID: 9}}
	follow := epoch.FollowRequest{
		Cluster: "c", BrokerName: "b", NodeID: 1, Address: "a:1", Epochs: list, Promise: epoch.Promise{Epoch: 4, ID: 9}, End: 10,
		First: 2, FileSize: 4096, TailChecksum: 77, TailSize: 8, MaxFrame: 9, Flushes: true, Downstream: []int64{1, 5}, ComparedTo: -1,
	}
	for _, v := range []any{l.heard, l.answer, promise, follow} {
		for rv, i := reflect.ValueOf(v), 0; i < rv.NumField(); i++ {
			if rv.Field(i).IsZero() {
				t.Fatalf("%T.%s is not set, so its loss would not be seen", v, rv.Type().Field(i).Name)
			}
		}
	}
	p := dialPeers(t, l)
	heard, err := p.Promise(t.Context(), "x", promise)
	if err != nil || !reflect.DeepEqual(heard, l.heard) || !reflect.DeepEqual(l.promise, promise) {
		t.Errorf("promise: %+v, %+v, %v", l.promise, heard, err)
	}
	s, err := p.Follow(t.Context(), "x", follow)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answer, err := s.Recv()
	if err != nil || !reflect.DeepEqual(answer, l.answer) || !reflect.DeepEqual(l.follow, follow) {
		t.Errorf("follow: %+v, %+v, %v", l.follow, answer, err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the link: %v", err)
	}
	sums, to, err := p.RangeChecksum(t.Context(), "x", 1, 2, 3)
	if err != nil || to != 2 || !reflect.DeepEqual(sums, []uint32{1, 2, 3}) {
		t.Errorf("checksums: %v %d %v", sums, to, err)
	}
}

func dialPeers(t *testing.T, l rpc.Lineage) *rpc.Peers {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	storagev1.RegisterReplicationServiceServer(srv, rpc.NewReplication(l))
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	p := rpc.NewPeers(func(string) (*grpc.ClientConn, error) {
		return grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}
