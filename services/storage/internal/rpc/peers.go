package rpc

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Peers asks other storages. Connections are made on first use and kept; all methods may be called concurrently.
type Peers struct {
	dial func(addr string) (*grpc.ClientConn, error)

	mu    sync.Mutex // guards conns
	conns map[string]*grpc.ClientConn
}

// NewPeers makes a Peers that dials with dial.
func NewPeers(dial func(addr string) (*grpc.ClientConn, error)) *Peers {
	return &Peers{dial: dial, conns: map[string]*grpc.ClientConn{}}
}

func (p *Peers) client(addr string) (storagev1.ReplicationServiceClient, error) {
	c, err := p.conn(addr)
	if err != nil {
		return nil, err
	}
	return storagev1.NewReplicationServiceClient(c), nil
}

func (p *Peers) conn(addr string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[addr]
	if c == nil {
		var err error
		if c, err = p.dial(addr); err != nil {
			return nil, err
		}
		p.conns[addr] = c
	}
	return c, nil
}

// Close closes all connections.
func (p *Peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, c := range p.conns {
		err = errors.Join(err, c.Close())
	}
	clear(p.conns)
	return err
}

// Promise asks the peer at addr.
func (p *Peers) Promise(ctx context.Context, addr string, r epoch.PromiseRequest) (epoch.Heard, error) {
	c, err := p.client(addr)
	if err != nil {
		return epoch.Heard{}, err
	}
	resp, err := c.Promise(ctx, promiseToWire(r))
	if err != nil {
		return epoch.Heard{}, err
	}
	return heardFromWire(resp)
}

// Answers is the receiving side of a Follow. Recv is for one goroutine.
type Answers struct {
	stream grpc.ServerStreamingClient[storagev1.FollowResponse]
	cancel context.CancelFunc
}

// Follow opens the control stream of a link to addr. It must be closed.
func (p *Peers) Follow(ctx context.Context, addr string, r epoch.FollowRequest) (*Answers, error) {
	c, err := p.client(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.Follow(ctx, followToWire(r))
	if err != nil {
		cancel()
		return nil, err
	}
	return &Answers{stream: s, cancel: cancel}, nil
}

// Recv returns the next answer; io.EOF when the upstream has ended the link.
func (a *Answers) Recv() (epoch.FollowAnswer, error) {
	resp, err := a.stream.Recv()
	if err != nil {
		return epoch.FollowAnswer{}, err
	}
	return answerFromWire(resp)
}

// Close ends the control stream.
func (a *Answers) Close() { a.cancel() }

// RangeChecksum returns the checksums of stretches of the log of addr, and the offset up to which they go.
func (p *Peers) RangeChecksum(ctx context.Context, addr string, from, to, stretch int64) ([]uint32, int64, error) {
	c, err := p.client(addr)
	if err != nil {
		return nil, 0, err
	}
	resp, err := c.RangeChecksum(ctx, &storagev1.RangeChecksumRequest{FromOffset: from, ToOffset: to, StretchSize: stretch})
	return resp.GetChecksums(), resp.GetToOffset(), err
}

// Drain has the master at addr hold its puts back until release is called or ctx ends.
func (p *Peers) Drain(ctx context.Context, addr string, r epoch.DrainRequest) (end int64, release func(), err error) {
	c, err := p.client(addr)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := c.Drain(ctx, &storagev1.DrainRequest{
		Cluster: r.Cluster, BrokerName: r.BrokerName, NodeId: r.NodeID, Epoch: r.Reign.Epoch, Id: uint64(r.Reign.ID),
	})
	var resp *storagev1.DrainResponse
	if err == nil {
		resp, err = s.Recv()
	}
	if err != nil {
		cancel()
		return 0, nil, err
	}
	return resp.GetEndOffset(), cancel, nil
}
