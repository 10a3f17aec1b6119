package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
)

// theatre is what all scenarios share.
type theatre struct {
	bin, dir string
	ports    *faults.Ports
	peers    map[string]*rocketmq.RocketMQ
}

func newTheatre(bin, dir string) (*theatre, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(bin, "storage")); err != nil {
		return nil, fmt.Errorf("no storage binary: %w; run make build", err)
	}
	if err := rocketmq.Installed(); err != nil {
		return nil, err
	}
	return &theatre{bin: bin, dir: dir, ports: faults.NewPorts(), peers: map[string]*rocketmq.RocketMQ{}}, nil
}

// stage is one scenario's folder and processes.
type stage struct {
	*theatre
	dir       string
	processes []*process
}

// process is one that the stage started.
type process struct {
	name, log string
	from      int64 // where its part of the log begins: a name may be started again
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
}

// start runs cmd; what it prints is appended to NAME.log, except for stdout where cmd has one already.
func (s *stage) start(name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, log: filepath.Join(s.dir, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	if p.from, err = log.Seek(0, io.SeekEnd); err != nil {
		return nil, err
	}
	cmd.Stderr = log
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // its state is in cmd.ProcessState
		close(p.done)
	}()
	s.processes = append(s.processes, p)
	return p, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// kill ends p as a crash does.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// stop ends p as an operator does and waits for it.
func (p *process) stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not stop: %w", p.name, context.Cause(ctx))
	}
}

// printed waits until p has printed text.
func (p *process) printed(ctx context.Context, text string) error {
	return await(ctx, fmt.Sprintf("%s printing %q", p.name, text), func() (bool, error) {
		log, err := os.ReadFile(p.log)
		if err != nil || strings.Contains(string(log[p.from:]), text) {
			return true, err
		}
		if p.ended() {
			return false, fmt.Errorf("%s ended at its start", p.name)
		}
		return false, nil
	})
}

// clear kills what still runs, the youngest first.
func (s *stage) clear() {
	for _, p := range slices.Backward(s.processes) {
		if !p.ended() {
			_ = p.kill() // it ended meanwhile
		}
	}
}

// showLogs prints the end of every log.
func (s *stage) showLogs() {
	seen := map[string]bool{}
	for _, p := range s.processes {
		log, err := os.ReadFile(p.log)
		if err != nil || seen[p.log] || len(log) == 0 {
			continue
		}
		seen[p.log] = true
		lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(log)), "\n"), func(l string) bool {
			return strings.Contains(l, "|-INFO in ") || strings.Contains(l, "|-WARN in ") || strings.TrimSpace(l) == "" // how 5.x sets up its logging
		})
		fmt.Printf("   --- %s, its last lines\n", p.name)
		for _, l := range lines[max(0, len(lines)-12):] {
			fmt.Println("      ", l)
		}
	}
}

// patience bounds every single wait.
const patience = time.Minute

// longPatience is for RocketMQ's slaves: one of version 5 asks for tables once a minute.
const longPatience = 150 * time.Second

// await asks until ok is true, an error comes, or patience ends.
func await(ctx context.Context, what string, ok func() (bool, error)) error {
	return awaitFor(ctx, patience, what, ok)
}

// awaitFor is await with another patience.
func awaitFor(ctx context.Context, patience time.Duration, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not come within %v", patience))
	defer cancel()
	for {
		done, err := ok()
		if err != nil {
			return fmt.Errorf("await %s: %w", what, err)
		}
		if done {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("await %s: %w", what, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// write makes a file and the folders above it.
func write(name string, r io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
