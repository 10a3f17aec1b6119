package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

const (
	copies = 3
	queues = 4
	topic  = "Torture"
)

// cluster is three nodes, the proxies between them and the connections of the clients.
type cluster struct {
	settings
	ports  *faults.Ports
	nodes  []*node
	links  map[[2]int]*faults.Link // gRPC, from a node to another
	raw    []*faults.Link          // raw port of a node
	conns  []*grpc.ClientConn
	client *client.Client
	served sync.WaitGroup
}

func newCluster(ctx context.Context, bin, dir string, p *faults.Ports, s settings) (*cluster, error) {
	c := &cluster{settings: s, ports: p, links: map[[2]int]*faults.Link{}}
	for id := range copies {
		port, err := p.Take(1)
		if err != nil {
			return nil, err
		}
		n := newNode(bin, dir, id, port)
		c.nodes = append(c.nodes, n)
		if err := os.MkdirAll(n.dir, 0o755); err != nil {
			return nil, err
		}
	}
	var addrs []string
	for _, n := range c.nodes {
		if err := c.wire(n); err != nil {
			c.close()
			return nil, err
		}
		addrs = append(addrs, n.addr)
	}
	var err error
	if c.client, err = client.Dial(ctx, client.Options{Addresses: addrs, Timeout: 2 * time.Second}); err != nil {
		c.close()
		return nil, err
	}
	for _, n := range c.nodes {
		if err := n.Start(); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// wire makes what leads to and from one node.
func (c *cluster) wire(n *node) error {
	port, err := c.ports.Take(1)
	if err != nil {
		return err
	}
	ha := faults.Loopback(port)
	raw, err := c.proxy(ha)
	if err != nil {
		return err
	}
	c.raw = append(c.raw, raw)
	peers := []string{n.addr}
	for _, other := range c.nodes {
		if other == n {
			continue
		}
		p, err := c.proxy(other.addr)
		if err != nil {
			return err
		}
		c.links[[2]int{n.id, other.id}] = p
		peers = append(peers, p.Addr())
	}
	conn, err := grpcx.Dial(n.addr, grpcx.ClientOptions{})
	if err != nil {
		return err
	}
	c.conns = append(c.conns, conn)
	return n.writeConfig(c.settings, ha, raw.Addr(), peers)
}

func (c *cluster) proxy(target string) (*faults.Link, error) {
	port, err := c.ports.Take(1)
	if err != nil {
		return nil, err
	}
	p, err := faults.NewLink(port, target)
	if err == nil {
		c.served.Go(p.Run)
	}
	return p, err
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.Freeze(false)
		n.Kill()
	}
	if c.client != nil {
		_ = c.client.Close() // nothing is sent any more
	}
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	for _, p := range c.links {
		p.Close()
	}
	for _, p := range c.raw {
		p.Close()
	}
	c.served.Wait()
}

func (c *cluster) message(id int) storagev1.MessageServiceClient {
	return storagev1.NewMessageServiceClient(c.conns[id])
}

func (c *cluster) admin(id int) storagev1.StorageAdminServiceClient {
	return storagev1.NewStorageAdminServiceClient(c.conns[id])
}

func (c *cluster) status(ctx context.Context, id int) (*storagev1.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	return c.admin(id).Status(ctx, &storagev1.StatusRequest{}, grpc.WaitForReady(true))
}

// master returns the open master; without one, false.
func (c *cluster) master(ctx context.Context) (int, bool) {
	var all sync.WaitGroup
	epochs := make([]int64, len(c.nodes))
	for id := range c.nodes {
		all.Go(func() {
			st, err := c.status(ctx, id)
			if e := st.GetEpochs(); err == nil && st.GetOpen() && len(e) > 0 {
				epochs[id] = e[len(e)-1].GetEpoch()
			}
		})
	}
	all.Wait()
	best := 0
	for id, e := range epochs {
		if e > epochs[best] {
			best = id
		}
	}
	return best, epochs[best] > 0
}

// healTime is how long the nodes may take to be in sync once nothing is in their way.
const healTime = 60 * time.Second

// heal undoes all faults.
func (c *cluster) heal() error {
	for _, p := range c.links {
		p.Heal()
	}
	for _, p := range c.raw {
		p.Heal()
	}
	for _, n := range c.nodes {
		n.Freeze(false)
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}

// inSync waits until all nodes have and serve the same. It returns the end of the log and the master.
func (c *cluster) inSync(ctx context.Context) (int64, int, error) {
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	promote := time.Now().Add(3 * time.Second)
	for next := 0; ; {
		end, master, why := c.whole(ctx)
		for _, n := range c.nodes {
			if err := n.Death(); err != nil {
				return 0, 0, err
			}
		}
		if why == "" {
			return end, master, nil
		}
		if _, ok := c.master(ctx); !ok && time.Now().After(promote) {
			// A demotion may have left the cluster without a master.
			_ = c.promote(ctx, next)
			next, promote = (next+1)%copies, time.Now().Add(3*time.Second)
		}
		if !sleep.For(ctx, 20*time.Millisecond) {
			return 0, 0, fmt.Errorf("not in sync %v after everything was healed: %s", healTime, why)
		}
	}
}

// whole says what keeps the nodes from being in sync, or the end that they share.
func (c *cluster) whole(ctx context.Context) (end int64, master int, why string) {
	open := 0
	for id, n := range c.nodes {
		st, err := c.status(ctx, id)
		if err != nil {
			return 0, 0, fmt.Sprintf("%s: %v", n.Name, err)
		}
		w := st.GetWatermarks()
		if id == 0 {
			end = w.GetWrittenOffset()
		}
		if w.GetWrittenOffset() != end || w.GetDispatchedOffset() != end || w.GetReadableOffset() != end {
			return 0, 0, fmt.Sprintf("%s: the end is %d on n0; %v", n.Name, end, st)
		}
		if st.GetOpen() {
			open, master = open+1, id
			if st.GetInSyncSlaves() != copies-1 {
				return 0, 0, fmt.Sprintf("%s: master with %d slaves in sync: %v", n.Name, st.GetInSyncSlaves(), st)
			}
		} else if s := st.GetUpstream().GetState(); s != storagev1.LinkState_LINK_STATE_IN_SYNC {
			why = fmt.Sprintf("%s: its link is %v: %v", n.Name, s, st)
		}
	}
	if open != 1 {
		return 0, 0, fmt.Sprintf("%d open masters; %s", open, why)
	}
	return end, master, why
}

func (c *cluster) promote(ctx context.Context, id int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.admin(id).Promote(ctx, &storagev1.PromoteRequest{})
	return err
}

func (c *cluster) demote(ctx context.Context, id int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.admin(id).Demote(ctx, &storagev1.DemoteRequest{})
	return err
}
