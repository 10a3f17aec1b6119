package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	"github.com/tandemlog/tandem/pkg/client"
)

// pair is a sync master and its slave as users run them, with a client in this process.
type pair struct {
	master, slave *child
	addr          string
	client        *client.Client
}

// tandem returns this round's pair.
func (r *rig) tandem(ctx context.Context) (*pair, error) {
	if r.pair == nil {
		p := new(pair)
		r.pair = p
		if err := p.open(ctx, r); err != nil {
			return nil, err
		}
	}
	return r.pair, nil
}

// open starts both on new folders and puts until the first file is full: the one that follows was made ahead, as all later
// ones are.
func (p *pair) open(ctx context.Context, r *rig) (err error) {
	if p.master, p.addr, err = r.storage(ctx, "master", "brokerRole: SYNC_MASTER"); err != nil {
		return err
	}
	if p.slave, _, err = r.storage(ctx, "slave", "brokerId: 1", "brokerRole: SLAVE", fmt.Sprintf("master: {address: %q}", p.addr)); err != nil {
		return err
	}
	if p.client, err = client.Dial(ctx, client.Options{Addresses: []string{p.addr}}); err != nil {
		return err
	}
	admin, err := p.client.Admin(p.addr)
	if err != nil {
		return err
	}
	err = p.master.await(ctx, "the slave in sync", func() (bool, error) {
		st, err := admin.Status(ctx)
		return err == nil && st.GetOpen() && st.GetInSyncSlaves() == 1, nil // it starts
	})
	if err != nil {
		return err
	}
	const body = 32 << 10
	producer := p.client.Producer(client.ProducerOptions{})
	var failed error
	err = producer.Stream(ctx, func(s *client.Sender) error {
		m := &client.Message{Topic: topic, Body: make([]byte, body)}
		for range putFile / body {
			if _, err := s.Send(ctx, m, func(o client.Outcome) { failed = errors.Join(failed, stored(o.Result, o.Err)) }); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(failed, err)
}

// storage starts one node with these lines of configuration besides those that all have.
func (r *rig) storage(ctx context.Context, name string, more ...string) (*child, string, error) {
	port, err := r.ports.Take(3)
	if err != nil {
		return nil, "", err
	}
	r.workers++
	dir := filepath.Join(r.mem, fmt.Sprint(r.workers))
	file := dir + ".yaml"
	text := fmt.Sprintf("storePathRootDir: %s\nlisten: %s\nhaListen: %s\ntelemetry: {debugListen: %q}\n"+
		"mappedFileSizeCommitLog: %q\nha: {congestionControl: %q}\n",
		dir, faults.Loopback(port), faults.Loopback(port+1), faults.Loopback(port+2), fmt.Sprint(putFile), r.congestion)
	for _, line := range more {
		text += line + "\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, "", err
	}
	c, err := r.start(name, exec.Command(r.storageBin, "-config", file)) //nolint:noctx // the rig ends it
	if err != nil {
		return nil, "", err
	}
	c.debug = faults.Loopback(port + 2)
	return c, faults.Loopback(port), nil
}

// end kills both; their folders go with the run's, but they may be large.
func (p *pair) end(mem string) error {
	var err error
	if p.client != nil {
		err = p.client.Close()
	}
	p.slave.end()
	p.master.end()
	left, gerr := filepath.Glob(filepath.Join(mem, "*", "commitlog"))
	err = errors.Join(err, gerr)
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Dir(dir)))
	}
	return err
}

// watch names the processes of a measurement.
func (p *pair) watch() map[string]process {
	return map[string]process{"client": new(self), "master": p.master, "slave": p.slave}
}

// stored returns what kept a message from being PUT_OK.
func stored(r *client.Result, err error) error {
	if err == nil && r.GetStatus() != client.StatusOK {
		err = fmt.Errorf("a put is answered %s: %s", client.StatusName(r.GetStatus()), r.GetReason())
	}
	return err
}

// streamPut measures puts of 200 bytes over one PutStream that has n of them under way.
func streamPut(n int, acks int32) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		p, err := r.tandem(ctx)
		if err != nil {
			return nil, err
		}
		var a answer
		cpu, err := r.watched(name, p.watch(), func() error {
			producer := p.client.Producer(client.ProducerOptions{Acks: &acks})
			m := &client.Message{Topic: topic, Body: make([]byte, bodySize)}
			return producer.Stream(ctx, func(s *client.Sender) error {
				a, err = window(n, r.time, func(done func(error)) error {
					_, err := s.Send(ctx, m, func(o client.Outcome) { done(stored(o.Result, o.Err)) })
					return err
				})
				return err
			})
		})
		return withCPU(a, cpu), err
	}
}

// unaryPut measures the same by callers that make a call for each.
func unaryPut(callers int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		p, err := r.tandem(ctx)
		if err != nil {
			return nil, err
		}
		var a answer
		cpu, err := r.watched(name, p.watch(), func() error {
			a, err = putEach(ctx, p.client, callers, r.time)
			return err
		})
		return withCPU(a, cpu), err
	}
}

func putEach(ctx context.Context, c *client.Client, callers int, d time.Duration) (answer, error) {
	producer := c.Producer(client.ProducerOptions{})
	return closedLoop(callers, d, func(int) func() error {
		m := &client.Message{Topic: topic, Body: make([]byte, bodySize)}
		return func() error { return stored(producer.Put(ctx, m)) }
	})
}
