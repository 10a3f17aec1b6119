package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
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

// node is one ledger process.
type node struct {
	name        string
	bin         string
	config, log string
	addr        string // gRPC, not through a proxy

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	wanted  bool // it is meant to run
	frozen  bool
	died    error
	mayFail bool // its disk is full: it may end by itself
}

// start starts the process if it is not meant to run already.
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
	n.cmd, n.wanted, n.frozen, n.exited = cmd, true, false, make(chan struct{})
	go n.watch(cmd, n.exited)
	return nil
}

// watch notes an end that nobody asked for.
func (n *node) watch(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	n.mu.Lock()
	if n.wanted && n.cmd == cmd {
		n.wanted = false
		if !n.mayFail {
			n.died = fmt.Errorf("%s ended by itself (%v); its last words are in %s", n.name, err, n.log) //nolint:errorlint // nil too
		}
	}
	n.mu.Unlock()
	close(exited)
}

// kill is kill -9, of a frozen process too; it returns when the process is gone.
func (n *node) kill() {
	n.mu.Lock()
	if !n.wanted {
		n.mu.Unlock()
		return
	}
	n.wanted = false
	_ = n.cmd.Process.Kill() // it may be gone already
	exited := n.exited
	n.mu.Unlock()
	<-exited
}

// terminate ends the process as an operator does; it must end with 0.
func (n *node) terminate() error {
	n.mu.Lock()
	if !n.wanted {
		n.mu.Unlock()
		return nil
	}
	n.wanted = false
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	select {
	case <-exited:
	case <-time.After(restTime):
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("%s does not stop within %v of SIGTERM", n.name, restTime)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s exits with %d after SIGTERM; its last words are in %s", n.name, code, n.log)
	}
	return nil
}

// freeze is SIGSTOP or, with false, SIGCONT.
func (n *node) freeze(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wanted || n.frozen == on {
		return
	}
	n.frozen = on
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	_ = n.cmd.Process.Signal(sig) // an end is noted by watch
}

// excuse says whether the node may end by itself.
func (n *node) excuse(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mayFail = on
}

// death is the end that nobody asked for.
func (n *node) death() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.died
}
