package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one whose CPU counts.
type process interface {
	spent() (seconds float64, err error)
	beginProfile(path string, d time.Duration) error
	endProfile() error
}

// watched runs f and returns the seconds of CPU that the processes, which are named, spent meanwhile. It takes their CPU
// profiles if these are asked for.
func (r *rig) watched(name string, of map[string]process, f func() error) (cpu float64, err error) {
	for who, p := range of {
		spent, err := p.spent()
		if err != nil {
			return 0, err
		}
		cpu -= spent
		if r.profile == "" {
			continue
		}
		if err := p.beginProfile(filepath.Join(r.profile, fileName(name+"-"+who)+".prof"), r.time); err != nil {
			return 0, err
		}
	}
	err = f()
	for _, p := range of {
		if r.profile != "" {
			err = errors.Join(err, p.endProfile())
		}
		spent, serr := p.spent()
		cpu += spent
		err = errors.Join(err, serr)
	}
	return cpu, err
}

// fileName is a name without what file names should not have.
func fileName(s string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune(", =/", c) {
			return '_'
		}
		return c
	}, s)
}

func (w *worker) spent() (float64, error) {
	a, err := w.do("spent")
	return a.Number["cpu"], err
}

func (w *worker) beginProfile(path string, _ time.Duration) error {
	_, err := w.do("profile path=%s", path)
	return err
}

func (w *worker) endProfile() error {
	_, err := w.do("profile")
	return err
}

// ticks is what /proc counts in a second.
const ticks = 100

// spent reads user and system time, the fields 14 and 15 of /proc/PID/stat; the name before them may hold spaces.
func (c *child) spent() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	const user, system = 14 - 3, 15 - 3
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", c.cmd.Process.Pid, len(fields))
	}
	u, err := strconv.ParseFloat(string(fields[user]), 64)
	if err != nil {
		return 0, err
	}
	s, err := strconv.ParseFloat(string(fields[system]), 64)
	return (u + s) / ticks, err
}

// beginProfile asks a storage for a profile of whole seconds.
func (c *child) beginProfile(path string, d time.Duration) error {
	if c.debug == "" {
		return nil
	}
	c.profiled = make(chan error, 1)
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", c.debug, (d+time.Second-1)/time.Second)
	go func() { c.profiled <- fetch(url, path) }()
	return nil
}

func (c *child) endProfile() error {
	if c.debug == "" {
		return nil
	}
	return <-c.profiled
}

func fetch(url, path string) (err error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, resp.Body)
	return errors.Join(err, f.Close())
}

// self is this process: the client of whole services.
type self struct{ profile *os.File }

func (*self) spent() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), err
}

func (s *self) beginProfile(path string, _ time.Duration) (err error) {
	if s.profile, err = os.Create(path); err != nil {
		return err
	}
	return pprof.StartCPUProfile(s.profile)
}

func (s *self) endProfile() error {
	pprof.StopCPUProfile()
	return s.profile.Close()
}
