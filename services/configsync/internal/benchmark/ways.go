package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

func idle() error { return nil }

// check is a round that finds nothing changed.
func (p *pair) check(ctx context.Context) (before, timed func() error) {
	p.slave = p.registry.Snapshot(entry.Topics)
	return idle, func() error {
		resp, err := p.sync.Check(ctx, &configsyncv1.CheckRequest{Caller: caller(), Versions: []*configsyncv1.TableVersion{wire.TableVersion(p.slave)}})
		if err == nil && resp.GetKinds()[0].GetResult() != configsyncv1.CheckResult_CHECK_RESULT_UNCHANGED {
			err = fmt.Errorf("nothing has changed, but %v", resp)
		}
		return err
	}
}

// empty is a unary call that does nothing, with the same request.
func (p *pair) empty(ctx context.Context) (before, timed func() error) {
	return idle, func() error {
		_, err := p.nothing.Check(ctx, &configsyncv1.CheckRequest{Caller: caller(), Versions: []*configsyncv1.TableVersion{wire.TableVersion(p.slave)}})
		return err
	}
}

// delta is a round that brings one topic with the answer, merged into the slave's table.
func (p *pair) delta(ctx context.Context) (before, timed func() error) {
	return p.follow(ctx, func(have *configsyncv1.TableVersion) (*table.Delta, error) {
		resp, err := p.sync.Check(ctx, &configsyncv1.CheckRequest{Caller: caller(), Versions: []*configsyncv1.TableVersion{have}, Deltas: true})
		if err != nil {
			return nil, err
		}
		a := chunk.NewAssembly(entry.Topics)
		if err := a.Add(resp.GetKinds()[0].GetDelta()); err != nil {
			return nil, err
		}
		return a.Delta()
	})
}

// fetch is the same by a stream.
func (p *pair) fetch(ctx context.Context) (before, timed func() error) {
	return p.follow(ctx, func(have *configsyncv1.TableVersion) (*table.Delta, error) { return p.receive(ctx, p.sync, have) })
}

// follow changes a topic, and has the slave take that.
func (p *pair) follow(ctx context.Context, get func(have *configsyncv1.TableVersion) (*table.Delta, error)) (before, timed func() error) {
	p.slave = p.registry.Snapshot(entry.Topics)
	return func() error { return p.change(ctx) }, func() error {
		d, err := get(wire.TableVersion(p.slave))
		if err != nil {
			return err
		}
		if d.Full || len(d.Entries) != 1 {
			return fmt.Errorf("a change of one topic brings %d, full %v", len(d.Entries), d.Full)
		}
		p.slave, _, err = table.Follow(p.slave, d, table.FollowOptions{})
		return err
	}
}

// emptyStream is a stream that brings a message of nothing.
func (p *pair) emptyStream(ctx context.Context) (before, timed func() error) {
	return idle, func() error {
		stream, err := p.nothing.Fetch(ctx, &configsyncv1.FetchRequest{Caller: caller(), Have: wire.TableVersion(p.slave)})
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
}

// full is the whole table, of a version that nobody has asked for yet.
func (p *pair) full(ctx context.Context) (before, timed func() error) {
	return func() error { return p.change(ctx) }, func() error {
		d, err := p.receive(ctx, p.sync, nil)
		if err != nil {
			return err
		}
		t, err := d.Table()
		if err == nil && t.Len() != len(p.names) {
			err = fmt.Errorf("%d topics of %d have come", t.Len(), len(p.names))
		}
		return err
	}
}

// protobuf marshals all topics as generated messages, as many together as in a chunk, and reads them again.
func (p *pair) protobuf(context.Context) (before, timed func() error) {
	if p.topics == nil {
		for _, name := range p.names {
			t := entry.NewTopic(name)
			p.topics = append(p.topics, &configsyncv1.Topic{
				Name: name, ReadQueues: t.ReadQueues, WriteQueues: t.WriteQueues, Perm: proto.Int32(int32(t.Perm)),
				FilterType: configsyncv1.TopicFilterType_TOPIC_FILTER_TYPE_SINGLE_TAG,
			})
		}
	}
	return idle, func() error {
		for first := 0; first < len(p.topics); first += chunk.MaxEntries {
			b, err := proto.Marshal(&configsyncv1.ListTopicsResponse{Topics: p.topics[first:min(first+chunk.MaxEntries, len(p.topics))]})
			if err != nil {
				return err
			}
			if err := proto.Unmarshal(b, &configsyncv1.ListTopicsResponse{}); err != nil {
				return err
			}
		}
		return nil
	}
}

// javaTopic is a topic as RocketMQ's answer has it.
type javaTopic struct {
	Name        string `json:"topicName"`
	ReadQueues  int32  `json:"readQueueNums"`
	WriteQueues int32  `json:"writeQueueNums"`
	Perm        int32  `json:"perm"`
	FilterType  string `json:"topicFilterType"`
	SysFlag     int32  `json:"topicSysFlag"`
	Order       bool   `json:"order"`
}

// json marshals all topics with the standard library into one text, as RocketMQ exchanges them, and reads them again.
func (p *pair) json(context.Context) (before, timed func() error) {
	all := map[string]javaTopic{}
	for _, name := range p.names {
		t := entry.NewTopic(name)
		all[name] = javaTopic{name, t.ReadQueues, t.WriteQueues, int32(t.Perm), t.FilterType, t.SysFlag, t.Order}
	}
	return idle, func() error {
		b, err := json.Marshal(all)
		if err != nil {
			return err
		}
		return json.Unmarshal(b, &map[string]javaTopic{})
	}
}

// ownJSON is the same with this product's own reader and writer, up to a table: what a RocketMQ slave costs, without the network.
func (p *pair) ownJSON(context.Context) (before, timed func() error) {
	t := p.registry.Snapshot(entry.Topics)
	return idle, func() error {
		got, err := jsonfile.Decode(entry.Topics, jsonfile.AppendWire(nil, t))
		if err == nil && got.Len() != t.Len() {
			err = fmt.Errorf("%d topics of %d have come", got.Len(), t.Len())
		}
		return err
	}
}
