package topics

import (
	"context"
	"slices"
	"sync"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// maxCreations bounds the topics that are being created at a time.
const maxCreations = 64

// Reasons of the configsync's errors.
const (
	reasonExists    = "ENTRY_EXISTS"
	reasonNotMaster = "NOT_MASTER"
)

// creations are under way; each topic has one at most, for which all puts to it wait.
type creations struct {
	mu      sync.Mutex // guards running
	running map[string]*creation
}

type creation struct {
	done chan struct{}
	// After done: how it went, and whether who began it has gone before that was known.
	err  error
	gone bool
}

// join returns the creation of the topic; mine says that the caller has begun it and is to end it.
func (cs *creations) join(topic string) (c *creation, mine bool, err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c = cs.running[topic]; c != nil {
		return c, false, nil
	}
	if len(cs.running) >= maxCreations {
		return nil, false, ErrCreations.With("topic", topic).With("limit", maxCreations)
	}
	c = &creation{done: make(chan struct{})}
	cs.running[topic] = c
	return c, true, nil
}

func (cs *creations) end(topic string, c *creation, err error, gone bool) {
	cs.mu.Lock()
	delete(cs.running, topic)
	cs.mu.Unlock()
	c.err, c.gone = err, gone
	close(c.done)
}

// create has the topic put into the table. nil: the view had it, or it was deleted since.
func (v *View) create(ctx context.Context, topic string) error {
	if err := v.o.MayCreate(); err != nil {
		return err
	}
	if !v.o.AutoCreate {
		return ErrNotFound.With("topic", topic).WithRemedy("create it: `tandemctl topic create %s`; or set autoCreateTopicEnable", topic)
	}
	bound, cancel := context.WithTimeout(ctx, v.o.CreateTimeout)
	defer cancel()
	for { // as often as whoever has begun it goes away
		c, mine, err := v.creations.join(topic)
		if err != nil {
			return err
		}
		if mine {
			err := v.tryCreate(bound, topic)
			v.creations.end(topic, c, err, ctx.Err() != nil)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		select {
		case <-c.done:
			if !c.gone {
				return c.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryCreate asks until the topic is there, somebody refuses it for good, or ctx ends. Right after a change of the master its
// configsync leads some tenths of a second later.
func (v *View) tryCreate(ctx context.Context, topic string) error {
	addr, why := v.o.Address, error(nil)
	pause := newBackoff()
	if _, ok := v.table.Load().get(topic); ok {
		return nil // another put was faster
	}
	for {
		version, err := v.askFor(ctx, addr, topic)
		if err == nil {
			v.metrics.created(ctx)
			err = v.await(ctx, topic, version)
		} else if errdefs.ReasonOf(err) == reasonExists {
			err = v.await(ctx, topic, nil)
		}
		if err == nil {
			return nil
		}
		if class := errdefs.ClassOf(err); why == nil || class != errdefs.DeadlineExceeded && class != errdefs.Canceled {
			why = err
		}
		if ctx.Err() == nil && !passes(err) {
			return refusal(topic, err)
		}
		addr = v.leader(err)
		if !pause.wait(ctx) {
			return ErrNotCreated.With("topic", topic).Wrap(why)
		}
	}
}

// leader is whom to ask after err: the master that it names, or else the own configsync.
func (v *View) leader(err error) string {
	if e := errdefs.As(err); e != nil && e.Reason == reasonNotMaster && e.Meta["master"] != "" {
		return e.Meta["master"]
	}
	return v.o.Address
}

// passes reports whether it is worth to ask again.
func passes(err error) bool {
	again := []errdefs.Class{errdefs.Unavailable, errdefs.ResourceExhausted, errdefs.Aborted, errdefs.DeadlineExceeded}
	return slices.Contains(again, errdefs.ClassOf(err)) || errdefs.ReasonOf(err) == reasonNotMaster
}

// refusal is the error of a topic that the configsync does not take.
func refusal(topic string, err error) error {
	if errdefs.ClassOf(err) == errdefs.InvalidArgument {
		return ErrRefused.With("topic", topic).Wrap(err)
	}
	return ErrNotCreated.With("topic", topic).Wrap(err)
}

// askFor asks the configsync at addr for the topic and returns the version of the table that has it.
func (v *View) askFor(ctx context.Context, addr, topic string) (*chunk.Version, error) {
	conn, err := v.conn(addr)
	if err != nil {
		return nil, err
	}
	queues := int32(v.o.Queues) //nolint:gosec // bounded by the config
	resp, err := configsyncv1.NewTopicServiceClient(conn).CreateTopic(ctx, &configsyncv1.CreateTopicRequest{
		Topic: &configsyncv1.Topic{Name: topic, ReadQueues: queues, WriteQueues: queues},
	})
	if err != nil {
		return nil, err
	}
	version := versionOf(resp.GetTableVersion())
	return &version, nil
}

// await waits until the view has the topic, or has passed the version at which the table did.
func (v *View) await(ctx context.Context, topic string, at *chunk.Version) error {
	for {
		seen := v.published.Load()
		s := v.table.Load()
		if _, ok := s.get(topic); ok || at != nil && !s.version.Before(*at) {
			return nil
		}
		if v.published.Wait(ctx, seen+1) != nil {
			return errNotSeen
		}
	}
}
