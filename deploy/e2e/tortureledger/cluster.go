package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

const copies = 3

// timing of elections.
type timing struct{ least, most, heartbeat time.Duration }

var (
	// shipped is what a ledger has by default.
	shipped = timing{time.Second, 2 * time.Second, 200 * time.Millisecond}
	// hasty sees elections within a window's faults.
	hasty = timing{400 * time.Millisecond, 800 * time.Millisecond, 80 * time.Millisecond}
)

// node is one ledger process.
type node struct {
	faults.Process
	addr string // gRPC, not through a link
}

// cluster is three nodes, the proxies between them and connections to each.
type cluster struct {
	timing
	dir    string
	nodes  []*node
	links  map[[2]int]*faults.Link // from a node to another
	conns  []*grpc.ClientConn
	disk   *disk // of n0; nil: its disk is that of all
	served sync.WaitGroup
}

// newCluster starts three nodes, makes them a group and waits until it has a leader. With small, n0 has a disk of its own that can
// be filled.
func newCluster(ctx context.Context, bin, dir string, p *faults.Ports, t timing, small bool) (c *cluster, err error) {
	c = &cluster{timing: t, dir: dir, links: map[[2]int]*faults.Link{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	for id := range copies {
		port, err := p.Take(1)
		if err != nil {
			return nil, err
		}
		name := "n" + strconv.Itoa(id)
		n := &node{
			Process: faults.Process{
				Name: name, Bin: filepath.Join(bin, "ledger"), Config: filepath.Join(dir, name+".yaml"), Log: filepath.Join(dir, name+".log"),
			},
			addr: faults.Loopback(port),
		}
		c.nodes = append(c.nodes, n)
		if err := os.MkdirAll(c.data(id), 0o755); err != nil {
			return nil, err
		}
	}
	if small {
		if c.disk, err = mountDisk(c.data(0)); err != nil {
			return nil, err
		}
	}
	for id, n := range c.nodes {
		if err := c.wire(id, p); err != nil {
			return nil, err
		}
		if err := n.Start(); err != nil {
			return nil, err
		}
	}
	return c, c.bootstrap(ctx)
}

// data is the folder of a node.
func (c *cluster) data(id int) string { return filepath.Join(c.dir, c.nodes[id].Name) }

// wire makes what leads from one node to the others, and writes its configuration.
func (c *cluster) wire(id int, p *faults.Ports) error {
	peers := make([]string, copies)
	for to, other := range c.nodes {
		addr := other.addr
		if to != id {
			port, err := p.Take(1)
			if err != nil {
				return err
			}
			link, err := faults.NewLink(port, other.addr)
			if err != nil {
				return err
			}
			c.links[[2]int{id, to}] = link
			c.served.Go(link.Run)
			addr = link.Addr()
		}
		peers[to] = other.Name + "-" + addr
	}
	n := c.nodes[id]
	// A node that comes back must not have to wait for the pause after the last failure to connect.
	soon := grpcx.ClientOptions{MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, ConnectTimeout: time.Second}
	conn, err := grpcx.Dial(n.addr, soon)
	if err != nil {
		return err
	}
	c.conns = append(c.conns, conn)
	return os.WriteFile(n.Config, []byte(c.config(id, peers)), 0o600)
}

// config is a node's configuration: files so small that windows fill several.
func (c *cluster) config(id int, peers []string) string {
	return fmt.Sprintf(`group: torture
selfId: %s
peers: [%s]
storePath: %s
listen: %s
mappedFileSizeForEntryData: 256KiB
mappedFileSizeForEntryIndex: 32KiB
minElectionTimeout: %v
maxElectionTimeout: %v
heartBeatTimeInterval: %v
telemetry:
  debugListen: 127.0.0.1:0
`, c.nodes[id].Name, strings.Join(peers, ", "), c.data(id), c.nodes[id].addr, c.least, c.most, c.heartbeat)
}

// restTime is how long the nodes may take to come to rest once nothing is in their way.
const restTime = 2 * time.Minute

func (c *cluster) bootstrap(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	var last error
	for {
		_, last = c.admin(0).Bootstrap(ctx, &ledgerv1.BootstrapRequest{Members: []string{"n0", "n1", "n2"}})
		if last == nil {
			break
		}
		if err := c.deaths(); err != nil {
			return err
		}
		if !sleep.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("bootstrap: %w", last)
		}
	}
	_, err := c.atRest(ctx)
	return err
}

func (c *cluster) ledger(id int) ledgerv1.LedgerServiceClient {
	return ledgerv1.NewLedgerServiceClient(c.conns[id])
}

func (c *cluster) admin(id int) ledgerv1.LedgerAdminServiceClient {
	return ledgerv1.NewLedgerAdminServiceClient(c.conns[id])
}

func (c *cluster) addrs() []string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.addr)
	}
	return all
}

// statuses asks all nodes at once; nil for those that do not answer in time.
func (c *cluster) statuses(ctx context.Context) []*ledgerv1.StatusResponse {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	all := make([]*ledgerv1.StatusResponse, copies)
	var wg sync.WaitGroup
	for id := range c.nodes {
		wg.Go(func() {
			if st, err := c.admin(id).Status(ctx, &ledgerv1.StatusRequest{}); err == nil {
				all[id] = st
			}
		})
	}
	wg.Wait()
	return all
}

// leader returns the leader of the newest term, false without one.
func (c *cluster) leader(ctx context.Context) (id int, term int64, ok bool) {
	for i, st := range c.statuses(ctx) {
		if st.GetRole() == ledgerv1.Role_ROLE_LEADER && st.GetTerm() > term {
			id, term, ok = i, st.GetTerm(), true
		}
	}
	return id, term, ok
}

// awaitLeader waits until a leader of a later term is there.
func (c *cluster) awaitLeader(ctx context.Context, after int64) (id int, term int64, ok bool) {
	for {
		if id, term, ok = c.leader(ctx); ok && term > after {
			return id, term, true
		}
		if !sleep.For(ctx, 10*time.Millisecond) {
			return 0, 0, false
		}
	}
}

// heal undoes all faults.
func (c *cluster) heal() error {
	for _, p := range c.links {
		p.Heal()
	}
	if c.disk != nil {
		if err := c.disk.free(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		n.Freeze(false)
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) deaths() error {
	var all error
	for _, n := range c.nodes {
		all = errors.Join(all, n.Death())
	}
	return all
}

// atRest waits until all nodes have the same log and know all of it to be committed, and returns the last index. Nobody may append
// meanwhile.
func (c *cluster) atRest(ctx context.Context) (int64, error) {
	return c.settled(ctx, func(all []*ledgerv1.StatusResponse) (int64, string) {
		for id, st := range all {
			if st.GetLastIndex() != all[0].GetLastIndex() || st.GetCommittedIndex() != st.GetLastIndex() {
				return 0, fmt.Sprintf("%s: %v", c.nodes[id].Name, st)
			}
		}
		return all[0].GetLastIndex(), ""
	})
}

// settled waits until one node leads, all others follow it closely as voters, and ok says nothing against it.
func (c *cluster) settled(ctx context.Context, ok func([]*ledgerv1.StatusResponse) (int64, string)) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	for {
		all := c.statuses(ctx)
		why := c.whole(all)
		if why == "" {
			var last int64
			if last, why = ok(all); why == "" {
				for _, n := range c.nodes {
					n.Excuse(false)
				}
				return last, c.deaths()
			}
		}
		if err := c.deaths(); err != nil {
			return 0, err
		}
		// One that ended on a full disk is started again.
		for _, n := range c.nodes {
			if err := n.Start(); err != nil {
				return 0, err
			}
		}
		if !sleep.For(ctx, 20*time.Millisecond) {
			return 0, fmt.Errorf("not at rest %v after everything was healed: %s", restTime, why)
		}
	}
}

// closely is a lag that a follower has while it follows.
const closely = 1000

// whole says what keeps the nodes from being a group, or nothing.
func (c *cluster) whole(all []*ledgerv1.StatusResponse) string {
	leaders := 0
	for id, st := range all {
		switch {
		case st == nil:
			return c.nodes[id].Name + " does not answer"
		case !st.GetVoter() || st.GetLeader() == "" || st.GetTerm() != all[0].GetTerm():
			return fmt.Sprintf("%s: %v", c.nodes[id].Name, st)
		case st.GetRole() != ledgerv1.Role_ROLE_LEADER:
			continue
		}
		leaders++
		for _, f := range st.GetFollowers() {
			if f.GetState() != ledgerv1.PushState_PUSH_STATE_APPEND || f.GetLag() > closely || f.GetLearner() {
				return fmt.Sprintf("%s: %v", c.nodes[id].Name, st)
			}
		}
	}
	if leaders != 1 {
		return fmt.Sprintf("%d nodes lead", leaders)
	}
	return ""
}

// inspect ends all nodes in order and has each folder checked.
func (c *cluster) inspect(ctx context.Context) error {
	var failed error
	for _, n := range c.nodes {
		if err := n.Terminate(restTime); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	for id, n := range c.nodes {
		out, err := exec.CommandContext(ctx, n.Bin, "check", c.data(id)).CombinedOutput()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: ledger check: %w: %s", n.Name, err, strings.TrimSpace(string(out))))
		}
	}
	return failed
}

func (c *cluster) close() error {
	for _, n := range c.nodes {
		n.Kill()
	}
	for _, conn := range c.conns {
		_ = conn.Close() // nothing is sent any more
	}
	for _, p := range c.links {
		p.Close()
	}
	c.served.Wait()
	if c.disk != nil {
		return c.disk.close()
	}
	return nil
}
