package faults

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Process is a service that is started again and again with one configuration.
type Process struct {
	Name        string
	Bin         string
	Config, Log string // files; the log grows from start to start

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	wanted  bool // it is meant to run
	frozen  bool
	mayFail bool
	died    error
}

// Start starts the process if it is not meant to run already.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted {
		return nil
	}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                               //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(p.Bin, "-config", p.Config) //nolint:gosec,noctx // that is its purpose; it is killed by name
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.wanted, p.frozen, p.exited = cmd, true, false, make(chan struct{})
	go p.watch(cmd, p.exited)
	return nil
}

// watch notes an end that nobody asked for.
func (p *Process) watch(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	if p.wanted && p.cmd == cmd {
		p.wanted = false
		if !p.mayFail {
			p.died = fmt.Errorf("%s ended by itself (%v); its last words are in %s", p.Name, err, p.Log) //nolint:errorlint // nil too
		}
	}
	p.mu.Unlock()
	close(exited)
}

// signal ends the process and returns what tells when it is gone; nil: it is not meant to run.
func (p *Process) signal(s syscall.Signal) (cmd *exec.Cmd, exited chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted {
		return nil, nil
	}
	p.wanted = false
	_ = p.cmd.Process.Signal(s) // it may be gone already
	return p.cmd, p.exited
}

// Kill is kill -9, of a frozen process too; it returns when the process is gone.
func (p *Process) Kill() {
	if _, exited := p.signal(syscall.SIGKILL); exited != nil {
		<-exited
	}
}

// Terminate ends the process as an operator does; it must end in time, and with 0.
func (p *Process) Terminate(within time.Duration) error {
	cmd, exited := p.signal(syscall.SIGTERM)
	if cmd == nil {
		return nil
	}
	select {
	case <-exited:
	case <-time.After(within):
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("%s does not stop within %v of SIGTERM", p.Name, within)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s exits with %d after SIGTERM; its last words are in %s", p.Name, code, p.Log)
	}
	return nil
}

// Freeze is SIGSTOP or, with false, SIGCONT.
func (p *Process) Freeze(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wanted || p.frozen == on {
		return
	}
	p.frozen = on
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	_ = p.cmd.Process.Signal(sig) // an end is noted by watch
}

// Excuse says whether the process may end by itself, such as on a full disk.
func (p *Process) Excuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mayFail = on
}

// Death is the end that nobody asked for.
func (p *Process) Death() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.died
}
