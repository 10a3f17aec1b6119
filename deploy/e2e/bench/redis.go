package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
)

// redis is a master and a replica that keep all in memory.
type redis struct {
	master, replica *child
	addr            string
}

// redisPair starts Redis for the whole run.
func (r *rig) redisPair(ctx context.Context) (*redis, error) {
	if r.redis != nil {
		return r.redis, nil
	}
	q := new(redis)
	r.redis = q
	var err error
	if q.master, q.addr, err = r.redisServer("redis"); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(q.addr)
	if err != nil {
		return nil, err
	}
	if q.replica, _, err = r.redisServer("redis-replica", "--replicaof", host+" "+port); err != nil {
		return nil, err
	}
	err = q.master.await(ctx, "Redis's replica", func() (bool, error) {
		c, err := q.dial(ctx)
		if err != nil {
			return false, nil // it starts
		}
		defer c.Close() //nolint:errcheck // nothing is under way
		return c.put(setCommand(0), 1) == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return q, q.warm(ctx)
}

// warm puts until the replica, which at first answers once a second only, has settled.
func (q *redis) warm(ctx context.Context) error {
	c, err := q.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	_, err = closedLoop(1, 2*time.Second, func(i int) func() error {
		set := setCommand(i)
		return func() error { return c.put(set, 1) }
	})
	return err
}

func (r *rig) redisServer(name string, more ...string) (*child, string, error) {
	port, err := r.ports.Take(1)
	if err != nil {
		return nil, "", err
	}
	dir := filepath.Join(r.mem, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", err
	}
	args := append([]string{
		"--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", "--maxclients", "2000",
	}, more...)
	c, err := r.start(name, exec.Command("redis-server", args...)) //nolint:noctx // the rig ends it
	return c, faults.Loopback(port), err
}

func (q *redis) end() {
	if q != nil {
		q.replica.end()
		q.master.end()
	}
}

// redisConn is a connection of a client.
type redisConn struct {
	net.Conn
	in  *bufio.Reader
	buf []byte
}

func (q *redis) dial(ctx context.Context) (*redisConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", q.addr)
	if err != nil {
		return nil, err
	}
	return &redisConn{Conn: c, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

// setCommand is a SET of 200 bytes to a key of the caller's own.
func setCommand(caller int) []byte {
	key := fmt.Sprintf("key:%06d", caller)
	return fmt.Appendf(nil, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, bodySize, strings.Repeat("x", bodySize))
}

const waitCommand = "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$4\r\n5000\r\n"

// put sends n SETs and one WAIT, in one write, and waits until a replica has them all. A connection that waits does nothing
// else: more than this cannot be pipelined on it.
func (c *redisConn) put(sets []byte, n int) error {
	c.buf = append(append(c.buf[:0], sets...), waitCommand...)
	if _, err := c.Write(c.buf); err != nil {
		return err
	}
	for range n {
		if err := c.expect("+OK\r\n"); err != nil {
			return err
		}
	}
	return c.expect(":1\r\n")
}

func (c *redisConn) expect(want string) error {
	got, err := c.in.ReadSlice('\n')
	if err == nil && string(got) != want {
		err = fmt.Errorf("redis answers %q, due is %q", got, want)
	}
	return err
}

// redisPut measures SET and WAIT 1 by callers that have a connection each.
func redisPut(callers int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		q, conns, err := r.redisConns(ctx, callers)
		if err != nil {
			return nil, err
		}
		defer closeAll(conns)
		var a answer
		cpu, err := r.watched(name, q.watch(), func() error {
			a, err = closedLoop(callers, r.time, func(i int) func() error {
				set := setCommand(i)
				return func() error { return conns[i].put(set, 1) }
			})
			return err
		})
		return withCPU(a, cpu), err
	}
}

// redisGathered measures the same on one connection: n SETs and one WAIT, again and again.
func redisGathered(n int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		q, conns, err := r.redisConns(ctx, 1)
		if err != nil {
			return nil, err
		}
		defer closeAll(conns)
		var sets []byte
		for i := range n {
			sets = append(sets, setCommand(i)...)
		}
		var a answer
		cpu, err := r.watched(name, q.watch(), func() error {
			a, err = closedLoop(1, r.time, func(int) func() error {
				return func() error { return conns[0].put(sets, n) }
			})
			return err
		})
		if err == nil {
			a.Number["per second"] *= float64(n)
			a.Number["done"] *= float64(n)
		}
		return withCPU(a, cpu), err
	}
}

func (q *redis) watch() map[string]process {
	return map[string]process{"client": new(self), "master": q.master, "replica": q.replica}
}

func (r *rig) redisConns(ctx context.Context, n int) (*redis, []*redisConn, error) {
	q, err := r.redisPair(ctx)
	if err != nil {
		return nil, nil, err
	}
	var conns []*redisConn
	for range n {
		c, err := q.dial(ctx)
		if err != nil {
			closeAll(conns)
			return nil, nil, err
		}
		conns = append(conns, c)
	}
	return q, conns, nil
}

func closeAll(conns []*redisConn) {
	for _, c := range conns {
		_ = c.Close() // nothing is under way
	}
}
