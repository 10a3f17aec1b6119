package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// child is a whole service, the product's or another one's, that clients are measured against.
type child struct {
	name, log string
	debug     string // address of its /debug/pprof; empty: it has none
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended

	profiled chan error // of the profile under way
}

// start runs cmd; what it prints goes to NAME.log. It is killed at the end of the run, or of this process.
func (r *rig) start(name string, cmd *exec.Cmd) (*child, error) {
	r.children++
	c := &child{name: name, log: filepath.Join(r.disk, fmt.Sprintf("%s-%d.log", name, r.children)), cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // it is always killed
		close(c.done)
	}()
	return c, nil
}

// end kills the child: what it wrote is not needed any more.
func (c *child) end() {
	if c != nil {
		_ = c.cmd.Process.Kill() // it may have ended by itself
		<-c.done
	}
}

// patience bounds every single wait. Name servers of RocketMQ are told of a broker every 30 s.
const patience = 2 * time.Minute

// await asks until ok is true, an error comes, the child ends, or patience has.
func (c *child) await(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not come within %v", patience))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-c.done:
			return fmt.Errorf("await %s: %s has ended: %s", what, c.name, c.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w; the last words of %s: %s", what, context.Cause(ctx), c.name, c.lastWords())
		}
	}
}

// printed waits until the child has printed text.
func (c *child) printed(ctx context.Context, text string) error {
	return c.await(ctx, fmt.Sprintf("%s printing %q", c.name, text), func() (bool, error) {
		b, err := os.ReadFile(c.log)
		return bytes.Contains(b, []byte(text)), err
	})
}

// lastWords are the end of what the child printed.
func (c *child) lastWords() string {
	const most = 1000
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-most):]))
}
