package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tandemlog/tandem/pkg/client"
)

// fileSizes are those of smallFiles: a RocketMQ master does not tell its slaves, and an empty folder does not show them.
const fileSizes = "mappedFileSizeCommitLog: 256KiB\nmappedFileSizeConsumeQueue: \"2000\"\nmaxMessageSize: 64KiB"

// node is a Tandem storage.
type node struct {
	*process
	s            *stage
	store        string
	addr, haAddr string
	config       string
	*client.Client
	admin *client.Admin
}

// tandem starts a storage on store with these lines of configuration besides its folder and addresses.
func (s *stage) tandem(ctx context.Context, store string, lines ...string) (*node, error) {
	port, err := s.ports.Take(3)
	if err != nil {
		return nil, err
	}
	n := &node{
		s: s, store: store, addr: fmt.Sprintf("127.0.0.1:%d", port), haAddr: fmt.Sprintf("127.0.0.1:%d", port+1),
		config: filepath.Join(s.dir, "tandem.yaml"),
	}
	text := fmt.Sprintf("storePathRootDir: %s\nlisten: %s\nhaListen: %s\ntelemetry: {debugListen: \"127.0.0.1:%d\"}\n%s\n",
		store, n.addr, n.haAddr, port+2, strings.Join(lines, "\n"))
	if err := write(n.config, strings.NewReader(text)); err != nil {
		return nil, err
	}
	if n.Client, err = client.Dial(ctx, client.Options{Addresses: []string{n.addr}}); err != nil {
		return nil, err
	}
	if n.admin, err = n.Admin(n.addr); err != nil {
		return nil, err
	}
	return n, n.start()
}

func (n *node) start() (err error) {
	n.process, err = n.s.start("tandem", exec.Command(filepath.Join(n.s.bin, "storage"), "-config", n.config)) //nolint:noctx // the stage ends it
	return err
}

// stop ends the node as an operator does; it must exit with 0.
func (n *node) stop(ctx context.Context) error {
	if err := n.process.stop(ctx); err != nil {
		return err
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the storage exits with %d after SIGTERM", code)
	}
	return n.Close()
}

// await asks for the status until ok says yes.
func (n *node) await(ctx context.Context, what string, ok func(*client.NodeStatus) bool) error {
	var last *client.NodeStatus
	err := await(ctx, "Tandem "+what, func() (bool, error) {
		if n.ended() {
			return false, fmt.Errorf("the storage ended by itself: %v", n.cmd.ProcessState)
		}
		st, err := n.admin.Status(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // it starts
		}
		last = st
		return ok(st), nil
	})
	if err != nil {
		return fmt.Errorf("%w; last status: %v", err, last)
	}
	return nil
}

// has waits until the node has everything before end in its log and its queues.
func (n *node) has(ctx context.Context, end int64) error {
	return n.await(ctx, fmt.Sprintf("having all before %d", end), func(st *client.NodeStatus) bool {
		return st.GetWatermarks().GetWrittenOffset() >= end && st.GetWatermarks().GetDispatchedOffset() >= end
	})
}

// frozen runs f while p is stopped by SIGSTOP: from when its last thread stands, as a signal is only asked for when kill returns.
func (p *process) frozen(ctx context.Context, f func() error) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := await(ctx, p.name+" standing still", p.standsStill)
	if err == nil {
		err = f()
	}
	if cont := p.signal(syscall.SIGCONT); err == nil {
		err = cont
	}
	return err
}

// standsStill says whether every thread of p is stopped.
func (p *process) standsStill() (bool, error) {
	names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			return false, nil //nolint:nilerr // a thread ended meanwhile
		}
		// The state is the letter behind the name, which may itself hold spaces and brackets.
		if _, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" ")); !ok || state[0] != 'T' {
			return false, nil
		}
	}
	return len(names) > 0, nil
}

// copyFiles copies a folder's files.
func copyFiles(from, to string) error { return os.CopyFS(to, os.DirFS(from)) }
