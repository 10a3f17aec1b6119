package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
)

// housekeeping is when a silent slave counts as gone: haHousekeepingInterval; slack is what a busy machine may add.
const (
	housekeeping = 20 * time.Second
	slack        = 4 * time.Second
)

// How long a put waits for slaves: briefly while the slave is stopped, so that the change of status is seen closely, and
// longer than any pause of a JVM on a busy machine while it should be PUT_OK.
const (
	putWait     = time.Second
	patientWait = 20 * time.Second
)

// gone is scenario d.
func gone(ctx context.Context, s *stage) (string, error) {
	q, err := s.rocketmq(ctx, "4.9.7")
	if err != nil {
		return "", err
	}
	n, err := s.tandem(ctx, filepath.Join(s.dir, "tandem"), fileSizes, "brokerRole: SYNC_MASTER",
		"haHousekeepingInterval: "+housekeeping.String(), "ha: {legacySlaves: true}")
	if err != nil {
		return "", err
	}
	if err := n.await(ctx, "opening", (*client.NodeStatus).GetOpen); err != nil {
		return "", err
	}
	slave, err := s.javaSlave(ctx, q, n.haAddr)
	if err != nil {
		return "", err
	}
	if err := s.inSync(ctx, n); err != nil {
		return "", err
	}
	p := &putter{p: n.Producer(client.ProducerOptions{SlaveTimeout: patientWait})}
	if err := p.all(ctx, 500, client.StatusOK); err != nil {
		return "", err
	}
	say("its RocketMQ slave follows: 500 SYNC puts, all PUT_OK")
	var after time.Duration
	brief := &putter{p: n.Producer(client.ProducerOptions{SlaveTimeout: putWait}), n: p.n}
	err = slave.frozen(ctx, func() error { after, err = brief.until(ctx, client.StatusSlaveNotAvailable); return err })
	if err != nil {
		return "", err
	}
	if err := s.inSync(ctx, n); err != nil {
		return "", err
	}
	if err := p.all(ctx, 500, client.StatusOK); err != nil {
		return "", err
	}
	say("the JVM goes on (SIGCONT): it connected again, caught up, and 500 puts are PUT_OK")
	if err := slave.stop(ctx); err != nil {
		return "", err
	}
	if err := n.stop(ctx); err != nil {
		return "", err
	}
	all, err := sameStores(n.store, slave.store)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("PUT_OK with the slave, FLUSH_SLAVE_TIMEOUT while it was stopped, SLAVE_NOT_AVAILABLE after %.1f s, PUT_OK when it was back; %v equal",
		after.Seconds(), all), nil
}

// putter puts numbered messages one after the other.
type putter struct {
	p *client.Producer
	n int
}

func (p *putter) put(ctx context.Context) (client.Status, error) {
	p.n++
	r, err := p.p.Put(ctx, message(p.n, newTopic))
	return r.GetStatus(), err
}

// all checks that each of n puts is answered so.
func (p *putter) all(ctx context.Context, n int, want client.Status) error {
	for range n {
		got, err := p.put(ctx)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("put %d is answered %s, due is %s", p.n, client.StatusName(got), client.StatusName(want))
		}
	}
	return nil
}

// until puts until the answer is last; before that every answer must be FLUSH_SLAVE_TIMEOUT, and the change must come when
// the slave, which reported just before, has been silent for the housekeeping interval.
func (p *putter) until(ctx context.Context, last client.Status) (time.Duration, error) {
	began := time.Now()
	timeouts := 0
	for {
		asked := time.Since(began)
		got, err := p.put(ctx)
		switch {
		case err != nil:
			return 0, err
		case got == client.StatusFlushSlaveTimeout && asked <= housekeeping+slack:
			timeouts++
		case got == last && timeouts > 0 && asked >= housekeeping-slack:
			say("while the JVM was stopped (SIGSTOP): %d x FLUSH_SLAVE_TIMEOUT, then, after %.1f s, %s", timeouts, asked.Seconds(), client.StatusName(got))
			return asked, p.all(ctx, 20, last)
		default:
			return 0, fmt.Errorf("%.1f s after the slave was stopped a put is answered %s, after %d x FLUSH_SLAVE_TIMEOUT",
				asked.Seconds(), client.StatusName(got), timeouts)
		}
	}
}
