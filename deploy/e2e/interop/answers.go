package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	configclient "github.com/tandemlog/tandem/pkg/client/config"
)

// answers are what Tandem says of its tables; etags, which are of a node's life, are 0.
type answers struct {
	topics map[string]*configclient.Topic
	groups map[string]*configclient.Group
	queues map[queueOf]int64
	delays map[int32]int64
}

// queueOf is a group's place: a queue of a topic.
type queueOf struct {
	group, topic string
	queue        int32
}

// answers asks Tandem for all that it has.
func (p *started) answers(ctx context.Context) (*answers, error) {
	a := &answers{
		topics: map[string]*configclient.Topic{}, groups: map[string]*configclient.Group{}, queues: map[queueOf]int64{}, delays: map[int32]int64{},
	}
	err := p.api.Topics().List(ctx, "", func(t *configclient.Topic) error {
		t.Etag = 0
		a.topics[t.GetName()] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = p.api.Groups().List(ctx, "", func(g *configclient.Group) error {
		g.Etag = 0
		a.groups[g.GetName()] = g
		return nil
	})
	if err != nil {
		return nil, err
	}
	for group := range a.groups {
		for topic := range a.topics {
			held, err := p.api.Offsets().Query(ctx, group, topic)
			if err != nil {
				return nil, err
			}
			for _, h := range held {
				a.queues[queueOf{group, topic, h.GetQueueId()}] = h.GetOffset()
			}
		}
	}
	delays, err := p.api.Offsets().QueryDelay(ctx)
	for _, d := range delays {
		a.delays[d.GetLevel()] = d.GetOffset()
	}
	return a, err
}

// same says what of a another node's or life's answers have not. What is not known is not compared where the tables
// were in foreign hands.
func (a *answers) same(now *answers, foreign bool) error {
	err := sameMessages("topic", a.topics, now.topics, func(t *configclient.Topic) {
		if foreign {
			t.UnknownJson = ""
		}
	})
	if err != nil {
		return err
	}
	err = sameMessages("group", a.groups, now.groups, func(g *configclient.Group) {
		if foreign {
			g.UnknownJson = ""
		}
	})
	if err != nil {
		return err
	}
	if !maps.Equal(a.queues, now.queues) {
		return fmt.Errorf("offsets were %v and are %v", a.queues, now.queues)
	}
	if !maps.Equal(a.delays, now.delays) {
		return fmt.Errorf("delay offsets were %v and are %v", a.delays, now.delays)
	}
	return nil
}

func sameMessages[M proto.Message](what string, was, is map[string]M, but func(M)) error {
	if len(was) != len(is) {
		return fmt.Errorf("%ss: there were %d and are %d", what, len(was), len(is))
	}
	for name, m := range was {
		now, ok := is[name]
		if !ok {
			return fmt.Errorf("%s %s is lost", what, name)
		}
		m, now = proto.CloneOf(m), proto.CloneOf(now)
		but(m)
		but(now)
		if !proto.Equal(m, now) {
			return fmt.Errorf("%s %s was %v and is %v", what, name, m, now)
		}
	}
	return nil
}

// strangeAll is how often strangeBeside and strangeField are in the files: beside each table, in two topics and two groups.
const strangeAll = 8

// strange counts those in a store's files.
func strange(store string) (n int, err error) {
	for file := range tableFields {
		text, err := os.ReadFile(filepath.Join(store, "config", file))
		if err != nil {
			return 0, err
		}
		n += bytes.Count(text, []byte("besideTheTable")) + bytes.Count(text, []byte("unheardOf"))
	}
	return n, nil
}

// wholeFiles reads all of a store's files but their dataVersions.
func wholeFiles(store string) (tables, error) {
	out := tables{}
	for file := range tableFields {
		text, err := os.ReadFile(filepath.Join(store, "config", file))
		if err != nil {
			return nil, err
		}
		dec := json.NewDecoder(bytes.NewReader(integerKey.ReplaceAll(text, []byte(`$1"$2":`))))
		dec.UseNumber()
		whole := map[string]any{}
		if err := dec.Decode(&whole); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", file, store, err)
		}
		delete(whole, "dataVersion")
		out[file] = whole
	}
	return out, nil
}
