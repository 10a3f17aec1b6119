package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// ports hands out ports below those that the kernel gives to dialers: a killed node must find its own again.
type ports struct{ last int }

const lowPort, highPort = 15000, 32000

func newPorts() *ports { return &ports{last: lowPort + rand.IntN(highPort-lowPort)} } //nolint:gosec // two runs side by side

// take returns a port that is free now and that it has not returned before.
func (p *ports) take() (int, error) {
	for range highPort - lowPort {
		if p.last++; p.last >= highPort {
			p.last = lowPort
		}
		l, err := net.Listen("tcp", loopback(p.last)) //nolint:noctx // does not block
		if err != nil {
			continue
		}
		return p.last, l.Close()
	}
	return 0, fmt.Errorf("no free port between %d and %d", lowPort, highPort)
}

// node is one storage process.
type node struct {
	id          int
	name        string
	dir         string // of the data
	config, log string
	bin         string
	addr        string // gRPC, not through a proxy

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	wanted  bool // it is meant to run
	died    error
	stopped bool
}

func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wanted {
		return nil
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                               //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(n.bin, "-config", n.config) //nolint:noctx // it is killed by name
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.wanted, n.exited = cmd, true, make(chan struct{})
	go n.watch(cmd, n.exited)
	return nil
}

// watch notes an end that nobody asked for.
func (n *node) watch(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	n.mu.Lock()
	if n.wanted && n.cmd == cmd {
		n.died = fmt.Errorf("%s ended by itself (%w); its last words are in %s", n.name, err, n.log)
		if err == nil {
			n.died = fmt.Errorf("%s ended by itself; its last words are in %s", n.name, n.log)
		}
	}
	n.mu.Unlock()
	close(exited)
}

// kill is kill -9, of a stopped process too.
func (n *node) kill() { n.end(syscall.SIGKILL) }

func (n *node) end(sig syscall.Signal) {
	n.mu.Lock()
	if !n.wanted {
		n.mu.Unlock()
		return
	}
	n.wanted, n.stopped = false, false
	_ = n.cmd.Process.Signal(sig) // it may be gone already
	exited := n.exited
	n.mu.Unlock()
	<-exited
}

// stop is SIGSTOP or, with false, SIGCONT.
func (n *node) stop(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wanted || n.stopped == on {
		return
	}
	n.stopped = on
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	_ = n.cmd.Process.Signal(sig) // an end is noted by watch
}

func (n *node) death() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.died
}

// settings are what differs between clusters.
type settings struct {
	refuse bool
	flush  string
}

// slaveGone is the silence after which a master gives a slave up.
const slaveGone = 700 * time.Millisecond

// writeConfig writes a node's config. Times are short, so that a round sees links being given up.
func (n *node) writeConfig(s settings, ha, haAdvertise string, peers []string) error {
	role := "SLAVE"
	if n.id == 0 {
		role = "SYNC_MASTER"
	}
	text := fmt.Sprintf(`brokerClusterName: torture
brokerName: broker-a
brokerId: %d
brokerRole: %s
storePathRootDir: %s
listen: %s
haListen: %s
haAdvertise: %s
flushDiskType: %s
mappedFileSizeCommitLog: 1MiB
mappedFileSizeConsumeQueue: 6000
maxMessageSize: 64KiB
defaultTopicQueueNums: %d
haSendHeartbeatInterval: 100ms
haHousekeepingInterval: %v
slaveTimeout: 500ms
ha:
  peers: [%s]
  masterRole: SYNC_MASTER
  required: 1
  refuseWithoutReplicas: %t
telemetry:
  debugListen: 127.0.0.1:0
`, n.id, role, n.dir, n.addr, ha, haAdvertise, s.flush, queues, slaveGone, strings.Join(peers, ", "), s.refuse)
	return os.WriteFile(n.config, []byte(text), 0o600)
}

func newNode(bin, dir string, id, port int) *node {
	name := "n" + strconv.Itoa(id)
	return &node{
		id: id, name: name, dir: filepath.Join(dir, name), addr: loopback(port),
		config: filepath.Join(dir, name+".yaml"), log: filepath.Join(dir, name+".log"), bin: filepath.Join(bin, "storage"),
	}
}
