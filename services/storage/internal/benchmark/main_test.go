package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// process is a benchmark in this process, with pipes as its standard input and output.
type process struct {
	t     *testing.T
	in    io.WriteCloser
	out   *json.Decoder
	ended chan error
}

func start(t *testing.T) *process {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &process{t: t, in: inW, out: json.NewDecoder(outR), ended: make(chan error, 1)}
	go func() {
		p.ended <- run(t.Context(), inR, outW)
		outW.Close()
	}()
	return p
}

func (p *process) ask(format string, args ...any) answer {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
	var a answer
	if err := p.out.Decode(&a); err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *process) do(format string, args ...any) answer {
	p.t.Helper()
	a := p.ask(format, args...)
	if a.Error != "" {
		p.t.Fatalf(format+": %s", append(args, a.Error)...)
	}
	return a
}

func (p *process) end() {
	p.t.Helper()
	p.in.Close()
	if err := <-p.ended; err != nil {
		p.t.Error(err)
	}
}

func TestPutsAndStreams(t *testing.T) {
	const file = 16 << 20
	dir := t.TempDir()
	m, s := start(t), start(t)
	m.do("open dir=%s file=%d", filepath.Join(dir, "m"), file)
	lead := m.do("lead").Text
	end := int(m.do("fill body=32768 bytes=%d", file+file/2).Number["end"])
	for i, how := range []string{"", "touched=1"} {
		s.do("open dir=%s file=%d %s", filepath.Join(dir, "s"), file, how)
		token := m.do("grant node=%d start=0 frame=262144", i).Text["token"]
		s.do("join addr=%s token=%s frame=262144 control=%s", lead["addr"], token, lead["control"])
		if a := s.do("arrived to=%d", end); a.Number["MB/s"] <= 0 || a.Number["dispatched MB/s"] <= 0 || a.Number["GB"]*1e9 != float64(end) {
			t.Errorf("stream: %v", a.Number)
		}
		if i == 0 {
			s.do("close")
		}
	}
	m.do("acked slaves=1")
	for _, acks := range []int{1, 0} {
		a := m.do("put callers=8 acks=%d body=200 time=200ms", acks)
		if a.Number["per second"] <= 0 || a.Number["p50 us"] <= 0 || a.Number["p99 us"] < a.Number["p50 us"] {
			t.Errorf("puts with %d acks: %v", acks, a.Number)
		}
	}
	if a := m.ask("put callers=1 acks=9 body=200 time=200ms"); a.Error == "" {
		t.Error("a put that no master can serve went well")
	}
	s.do("leave")
	s.end()
	m.end()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestResetSlaveFollows: a slave that starts where the master's second file does.
func TestResetSlaveFollows(t *testing.T) {
	const file = 1 << 20
	dir := t.TempDir()
	m, s := start(t), start(t)
	m.do("open dir=%s file=%d", filepath.Join(dir, "m"), file)
	addr := m.do("lead").Text["addr"]
	end := int(m.do("fill body=1024 bytes=%d", file).Number["end"])
	s.do("open dir=%s file=%d", filepath.Join(dir, "s"), file)
	s.do("reset start=%d", file)
	s.do("join addr=%s token=%s", addr, m.do("grant node=0 start=%d", file).Text["token"])
	s.do("arrived to=%d", end)
	if a := m.do("allocs count=10 acks=1 body=200"); a.Number["allocs"] < 1 {
		t.Errorf("a put makes an id at least: %v", a.Number)
	}
	s.end()
	m.end()
}

func TestLimits(t *testing.T) {
	from, to := start(t), start(t)
	addr := to.do("serve").Text["addr"]
	if a := from.do("stream addr=%s time=20ms", addr); a.Number["MB/s"] <= 0 {
		t.Errorf("stream: %v", a.Number)
	}
	if a := from.do("ping addr=%s time=20ms", addr); a.Number["per second"] <= 0 || a.Number["p50 us"] <= 0 {
		t.Errorf("ping: %v", a.Number)
	}
	for _, wrong := range []string{"sing", "ping addr=127.0.0.1:1 time=1s", "ping addr=" + addr + " time=soon"} {
		if from.ask("%s", wrong).Error == "" {
			t.Errorf("%q went well", wrong)
		}
	}
	to.end()
	from.end()
}
