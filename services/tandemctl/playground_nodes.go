package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// stopBudget is what a node gets to stop before it is killed; above the storage's own shutdownTimeout.
const stopBudget = 25 * time.Second

// playground is a master, nodes[0], and its slaves, with a config sync node beside each; or the members of a ledger's group.
type playground struct {
	a         *app
	f         *playFlags
	bin       string
	configBin string // of config sync; "": there is none
	nodes     []*playNode
	configs   []*playNode
	exits     chan *playNode // each node once, when its process has ended
}

// all are the nodes in the order in which they are started.
func (p *playground) all() []*playNode { return slices.Concat(p.nodes, p.configs) }

// playNode is one child process.
type playNode struct {
	name, bin                     string
	id                            int
	dir                           string // of the data
	config, logFile               string
	listen, haListen, debugListen string

	cmd  *exec.Cmd
	pid  int
	done chan struct{} // closed when the process has ended
	err  error         // why; read after done
}

// ended says how the process ended.
func (n *playNode) ended() string {
	<-n.done
	if n.err == nil {
		return "exit status 0"
	}
	return n.err.Error()
}

// nodeConfig is the part of a storage's configuration that the playground sets.
type nodeConfig struct {
	BrokerClusterName       string           `yaml:"brokerClusterName"`
	BrokerName              string           `yaml:"brokerName"`
	BrokerID                int              `yaml:"brokerId"`
	BrokerRole              string           `yaml:"brokerRole"`
	StorePathRootDir        string           `yaml:"storePathRootDir"`
	Listen                  string           `yaml:"listen"`
	HAListen                string           `yaml:"haListen"`
	MappedFileSizeCommitLog int64            `yaml:"mappedFileSizeCommitLog,omitempty"`
	ConfigSync              *addressSection  `yaml:"configsync,omitempty"`
	HA                      haSection        `yaml:"ha"`
	Telemetry               telemetrySection `yaml:"telemetry"`
}

type addressSection struct {
	Address string `yaml:"address"`
}

type telemetrySection struct {
	DebugListen string `yaml:"debugListen"`
}

type haSection struct {
	Peers    []string `yaml:"peers"`
	Required int      `yaml:"required"`
}

// configOf returns the YAML of one node.
func (p *playground) configOf(n *playNode) ([]byte, error) {
	c := nodeConfig{
		BrokerClusterName: "playground", BrokerName: "broker-a", BrokerID: n.id, BrokerRole: "SLAVE",
		StorePathRootDir: n.dir, Listen: n.listen, HAListen: n.haListen,
		HA: haSection{Required: max(p.f.acks, 1)}, Telemetry: telemetrySection{DebugListen: n.debugListen},
	}
	if len(p.configs) > 0 {
		c.ConfigSync = &addressSection{Address: p.configs[n.id].listen}
	}
	for _, peer := range p.nodes {
		c.HA.Peers = append(c.HA.Peers, peer.listen)
	}
	if n.id == 0 {
		if c.BrokerRole = "SYNC_MASTER"; p.f.async {
			c.BrokerRole = "ASYNC_MASTER"
		}
		if !hasLog(n.dir) { // files that exist say their size themselves
			c.MappedFileSizeCommitLog = p.f.fileSize
		}
	}
	return yaml.Marshal(c)
}

// prepare makes all that the nodes need to start.
func (p *playground) prepare() error {
	if p.f.ledger {
		return p.prepareGroup()
	}
	return p.prepareStorages()
}

// prepareStorages makes folders, copies the store to begin with, chooses ports and writes a configuration for each node.
func (p *playground) prepareStorages() error {
	ports, err := freePorts(5 * (p.f.slaves + 1))
	if err != nil {
		return err
	}
	p.exits = make(chan *playNode, 2*(p.f.slaves+1))
	for id := range p.f.slaves + 1 {
		name := "master"
		if id > 0 {
			name = fmt.Sprintf("slave-%d", id)
		}
		root := filepath.Join(p.f.dir, name)
		p.nodes = append(p.nodes, &playNode{
			name: name, id: id, bin: p.bin, dir: filepath.Join(root, "data"), config: filepath.Join(root, "storage.yaml"), logFile: filepath.Join(root, "storage.log"),
			listen: ports[3*id], haListen: ports[3*id+1], debugListen: ports[3*id+2],
		})
		if err := os.MkdirAll(filepath.Join(root, "data"), 0o755); err != nil {
			return fmt.Errorf("make a folder for %s: %w", name, err)
		}
	}
	if p.f.from != "" {
		if err := p.takeOver(); err != nil {
			return err
		}
	}
	if err := p.prepareConfigs(ports[3*len(p.nodes):]); err != nil {
		return err
	}
	for _, n := range p.nodes {
		b, err := p.configOf(n)
		if err == nil {
			err = os.WriteFile(n.config, b, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the configuration of %s: %w", n.name, err)
		}
	}
	return nil
}

// Ports are taken from here: above the well-known ones, below those that the kernel gives to outgoing connections, so that
// nothing takes the port of a node that is down for a moment.
const firstPort, lastPort = 12000, 32000

// freePorts returns loopback addresses whose ports nobody listens on now. They are chosen together, so that they differ.
func freePorts(n int) (addrs []string, err error) {
	for range 1000 {
		ln, listenErr := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(lastPort-firstPort))) //nolint:noctx // does not block
		if listenErr != nil {
			continue // taken
		}
		defer func() { err = errors.Join(err, ln.Close()) }()
		if addrs = append(addrs, ln.Addr().String()); len(addrs) == n {
			return addrs, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports between %d and %d on 127.0.0.1", n, firstPort, lastPort)
}

func (p *playground) addresses() string {
	var all []string
	for _, n := range p.nodes {
		all = append(all, n.listen)
	}
	return strings.Join(all, ",")
}

// start starts a node's process; its output goes to its log file.
func (p *playground) start(n *playNode) error {
	out, err := os.OpenFile(n.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", n.name, err)
	}
	defer func() { _ = out.Close() }()               // the child has its own
	n.cmd = exec.Command(n.bin, "-config", n.config) //nolint:gosec,noctx // the binary that the user means; stopped by stop
	n.cmd.Stdout, n.cmd.Stderr = out, out
	n.cmd.Env = childEnv(os.Environ())
	// A group of its own: Ctrl-C reaches tandemctl only, which stops the nodes in order; should it be killed they stop as well.
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := n.cmd.Start(); err != nil {
		return errdefs.Newf(errdefs.Internal, "START_FAILED", "cannot start %s", n.bin).Wrap(err).WithRemedy("name another binary with --storage-bin, --configsync-bin or --ledger-bin")
	}
	n.pid, n.done = n.cmd.Process.Pid, make(chan struct{})
	go func() {
		n.err = n.cmd.Wait()
		close(n.done)
		p.exits <- n
	}()
	return nil
}

// childEnv leaves out what would override the nodes' configurations.
func childEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "TANDEM_STORAGE_") && !strings.HasPrefix(kv, "TANDEM_LEDGER_") && !strings.HasPrefix(kv, "TANDEM_CONFIGSYNC_") {
			out = append(out, kv)
		}
	}
	return out
}

// awaitSync waits until the master is open and all slaves are in sync, and tells what is new meanwhile.
func (p *playground) awaitSync(ctx context.Context) error {
	c, err := p.a.dial(ctx, p.nodes[0].listen)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	admin, err := c.Admin("")
	if err != nil {
		return err
	}
	return p.await(ctx, "not all nodes were in sync in time", func(told string) (string, error) {
		st, err := admin.Status(ctx)
		switch {
		case err != nil:
			return told, nil //nolint:nilerr // it is asked again
		case st.GetOpen() && int(st.GetInSyncSlaves()) >= len(p.nodes)-1:
			return "", nil
		}
		return p.progress(st), nil
	})
}

// noAnswer is what the playground waits for at first, which is no news.
const noAnswer = "-"

// await waits until there is nothing left to wait for, and tells what that is when it is new. A node that ends is the end of it.
func (p *playground) await(ctx context.Context, late string, progress func(told string) (string, error)) error {
	told := noAnswer
	for {
		now, err := progress(told)
		if err != nil || now == "" {
			return err
		}
		if now != told && ctx.Err() == nil {
			say(p.a.errOut, "  "+now)
			told = now
		}
		select {
		case n := <-p.exits:
			return errdefs.Newf(errdefs.Internal, "NODE_ENDED", "%s has ended: %s%s", n.name, n.ended(), lastLines(n.logFile)).
				WithRemedy("see %s and %s", n.logFile, n.config)
		case <-ctx.Done():
			return errdefs.Newf(errdefs.DeadlineExceeded, "NOT_IN_SYNC", "%s: %s", late, told).
				WithRemedy("give it more with --ready-timeout; the logs are under %s", p.f.dir)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// progress says what the master is waiting for.
func (p *playground) progress(st *client.NodeStatus) string {
	if !st.GetOpen() {
		return strings.TrimSpace("the master is not open yet " + st.GetReason())
	}
	parts := []string{fmt.Sprintf("%d of %d slaves in sync", st.GetInSyncSlaves(), len(p.nodes)-1)}
	for _, s := range st.GetSlaves() {
		if !s.GetInSync() {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("slave-%d %s, %s behind %s", s.GetNodeId(), linkName(s.GetState()), sizeText(s.GetLagBytes()), s.GetReason())))
		}
	}
	return strings.Join(parts, "; ")
}

// stop ends all nodes, those of config sync first, then slaves, and waits for each.
func (p *playground) stop() error {
	var failed error
	for _, n := range slices.Backward(p.all()) {
		if n.done != nil {
			failed = errors.Join(failed, n.stop(p.a.hurry))
		}
	}
	return failed
}

// stop ends the process in order, or at once when hurry is closed.
func (n *playNode) stop(hurry <-chan struct{}) error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", n.name, err)
	}
	timer := time.NewTimer(stopBudget)
	defer timer.Stop()
	why := ""
	select {
	case <-n.done:
		return nil
	case <-hurry:
		why = "before it had stopped"
	case <-timer.C:
		why = fmt.Sprintf("as it did not stop within %v", stopBudget)
	}
	err := n.cmd.Process.Kill()
	<-n.done
	return errors.Join(errdefs.Newf(errdefs.Aborted, "KILLED", "%s (pid %d) was killed %s", n.name, n.pid, why).
		WithRemedy("its log is %s; it recovers at the next start", n.logFile), err)
}

// lastLines returns the end of a log, to be shown below a message.
func lastLines(name string) string {
	b, err := os.ReadFile(name)
	if err != nil || len(b) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b[max(0, len(b)-4096):])), "\n")
	return "\n    " + strings.Join(lines[max(0, len(lines)-5):], "\n    ")
}
