package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestClosedLoop(t *testing.T) {
	const d = 20 * time.Millisecond
	var done [3]atomic.Int64
	a, err := closedLoop(len(done), d, func(i int) func() error {
		return func() error {
			done[i].Add(1)
			return nil
		}
	})
	if err != nil || a.Number["per second"] <= 0 || a.Number["p99 us"] < a.Number["p50 us"] {
		t.Errorf("%v, %v", a.Number, err)
	}
	for i := range done {
		if done[i].Load() == 0 {
			t.Errorf("caller %d did nothing", i)
		}
	}
	failed := errors.New("no")
	_, err = closedLoop(2, d, func(i int) func() error {
		return func() error {
			if i == 1 {
				return failed
			}
			return nil
		}
	})
	if !errors.Is(err, failed) {
		t.Errorf("the second caller failed, the loop says %v", err)
	}
}

// fakeRedis answers SETs and WAITs of one connection with what Redis would, and counts them.
func fakeRedis(c net.Conn, replicas string, sets, waits *atomic.Int64) {
	in := bufio.NewReader(c)
	line := func() string {
		s, err := in.ReadString('\n')
		if err != nil {
			return ""
		}
		return strings.TrimSpace(s)
	}
	for line() == "*3" { // then a size and a word, three times
		line()
		command := line()
		for range 4 {
			line()
		}
		answer := "+OK\r\n"
		if sets.Add(1); command == "WAIT" {
			sets.Add(-1)
			waits.Add(1)
			answer = ":" + replicas + "\r\n"
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

func TestWindow(t *testing.T) {
	const n, d = 3, 20 * time.Millisecond
	under := make(chan func(error), n)
	var worst, now atomic.Int64
	go func() {
		for done := range under {
			now.Add(-1)
			done(nil)
		}
	}()
	send := func(done func(error)) error {
		worst.Store(max(worst.Load(), now.Add(1)))
		under <- done
		return nil
	}
	if a, err := window(n, d, send); err != nil || a.Number["per second"] <= 0 || worst.Load() > n {
		t.Errorf("%v, %v, %d under way", a.Number, err, worst.Load())
	}
	close(under)
	failed := errors.New("no")
	for _, send := range []func(func(error)) error{
		func(done func(error)) error { done(failed); return nil },
		func(func(error)) error { return failed },
	} {
		if _, err := window(1, d, send); !errors.Is(err, failed) {
			t.Errorf("one failed, the window says %v", err)
		}
	}
}

func TestSetsBeforeAWait(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	var sets, waits atomic.Int64
	go fakeRedis(theirs, "1", &sets, &waits)
	c := &redisConn{Conn: ours, in: bufio.NewReader(ours)}
	for range 2 {
		if err := c.put(append(setCommand(1), setCommand(2)...), 2); err != nil {
			t.Fatal(err)
		}
	}
	if sets.Load() != 4 || waits.Load() != 2 {
		t.Errorf("%d SETs, %d WAITs", sets.Load(), waits.Load())
	}
}

func TestASetThatNoReplicaHas(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	var sets, waits atomic.Int64
	go fakeRedis(theirs, "0", &sets, &waits)
	c := &redisConn{Conn: ours, in: bufio.NewReader(ours)}
	if err := c.put(setCommand(7), 1); err == nil || !strings.Contains(err.Error(), ":0") {
		t.Errorf("%v", err)
	}
}
