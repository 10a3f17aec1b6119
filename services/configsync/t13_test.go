package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// importText sends one of RocketMQ's files.
func (n *node) importText(k configsyncv1.Kind, mode configsyncv1.ImportMode, text string) (*configsyncv1.ImportResult, error) {
	n.t.Helper()
	stream, err := n.admin().Import(n.t.Context())
	if err != nil {
		return nil, err
	}
	for first := true; first || len(text) > 0; first = false {
		size := min(len(text), 1<<20)
		if err := stream.Send(&configsyncv1.ImportRequest{Mode: mode, Kind: k, Data: []byte(text[:size])}); err != nil {
			break // the answer says why
		}
		text = text[size:]
	}
	resp, err := stream.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	return resp.GetResults()[0], nil
}

// offsetsText are queues of topics, as consumerOffset.json has them.
func offsetsText(topics, queues int) string {
	var b strings.Builder
	b.WriteString(`{"offsetTable":{`)
	for i := range topics {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"Topic%04d@Group%04d":{`, i, i)
		for q := range queues {
			if q > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "%d:%d", q, 1000000+i)
		}
		b.WriteByte('}')
	}
	b.WriteString("}}")
	return b.String()
}

const merge = configsyncv1.ImportMode_IMPORT_MODE_MERGE

// TestT13_MoreThanAReplyHolds: tables of more than 4 MiB reach an empty slave while they change; then a round moves next to nothing.
func TestT13_MoreThanAReplyHolds(t *testing.T) {
	t.Parallel()
	g := group(t, 1, func(c *Config) { c.SyncTimeout = patience })
	size := scaled(12000, 20000)
	m := g[0].start().awaitOpen()
	for k, text := range map[entry.Kind]string{
		entry.Topics:          tableText(entry.Topics, entry.Version{}, size),
		entry.Groups:          tableText(entry.Groups, entry.Version{}, size),
		entry.ConsumerOffsets: offsetsText(size, 10),
	} {
		r, err := m.importText(configsyncv1.Kind(k), merge, text)
		if err != nil || r.GetAdded() != int64(size) {
			t.Fatalf("import %v: %v, %v", k, r, err)
		}
	}
	proxy := testkit.NewProxy(t, m.cfg.Listen)
	s := g[1]
	s.cfg.Peers = []string{s.cfg.Listen, proxy.Addr()}
	changes, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for i := 0; changes.Err() == nil; i++ {
			m.create(fmt.Sprintf("New%06d", i))
			for j := range 100 {
				m.commit(fmt.Sprintf("Topic%04d", j), fmt.Sprintf("Group%04d", j), int64(2000000+i))
			}
		}
	})
	s.start()
	s.await("the first sync", func(st *configsyncv1.StatusResponse) bool {
		return st.GetKinds()[0].GetVersion().GetEntries() >= int64(size) && st.GetKinds()[1].GetVersion().GetEntries() >= int64(size)
	})
	stop()
	load.Wait()
	same(t, m, s)
	if a, b := m.export(), s.export(); !maps.Equal(a, b) {
		t.Error("the files differ")
	} else if n := len(a["topics.json"]) + len(a["subscriptionGroup.json"]) + len(a["consumerOffset.json"]); n < 4<<20 {
		t.Errorf("the tables have only %d bytes", n)
	}
	for range 2 {
		if _, err := s.admin().Sync(t.Context(), &configsyncv1.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	before := proxy.Bytes(testkit.Up) + proxy.Bytes(testkit.Down)
	const rounds = 10
	for range rounds {
		if _, err := s.admin().Sync(t.Context(), &configsyncv1.SyncRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	moved := (proxy.Bytes(testkit.Up) + proxy.Bytes(testkit.Down) - before) / rounds
	t.Logf("a round without change moves %d bytes", moved)
	if moved >= 1024 {
		t.Errorf("a round without change moves %d bytes", moved)
	}
}

// TestAChangeComesSoon: the watch stream brings each change while the rounds sleep.
func TestAChangeComesSoon(t *testing.T) {
	t.Parallel()
	g := group(t, 3, func(c *Config) { c.SyncInterval = time.Hour })
	for _, n := range g {
		n.start()
	}
	m := g[0].awaitOpen()
	same(t, g...)
	var worst time.Duration
	for i := range 20 {
		name := fmt.Sprintf("Topic%d", i)
		m.create(name)
		began := time.Now()
		for _, s := range g[1:] {
			until(t, name, func(context.Context) (bool, string) {
				return s.app.registry.Snapshot(entry.Topics).Topic(name) != nil, ""
			})
		}
		worst = max(worst, time.Since(began))
	}
	t.Logf("the slowest of 20 changes took %v to 3 slaves", worst)
}
