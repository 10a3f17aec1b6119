package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// fakeMaster answers as it is told to.
type fakeMaster struct {
	configsyncv1.UnimplementedConfigSyncServiceServer

	addr string

	mu     sync.Mutex
	epoch  int64
	tables map[entry.Kind]*table.Table
	// answer sends a transfer of a kind; nil: the table.
	answer func(ctx context.Context, k entry.Kind, t *table.Table, send sender) error
	over   chan struct{} // ends watch streams
	// check answers for a kind; nil: it has changed.
	check func(k entry.Kind, deltas bool) *configsyncv1.KindCheck
}

type sender func(h *configsyncv1.TransferHeader, chunk []byte) error

func newFakeMaster(t *testing.T) *fakeMaster {
	t.Helper()
	f := &fakeMaster{addr: servicetest.FreeAddr(t), epoch: 1, tables: map[entry.Kind]*table.Table{}, over: make(chan struct{})}
	server, err := grpcx.NewServer(grpcx.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	configsyncv1.RegisterConfigSyncServiceServer(server, f)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("fake master: %v", err)
		}
	})
	return f
}

// now sets what is answered from now on; streams end.
func (f *fakeMaster) now(answer func(ctx context.Context, k entry.Kind, t *table.Table, send sender) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
	close(f.over)
	f.over = make(chan struct{})
}

func (f *fakeMaster) Check(_ context.Context, req *configsyncv1.CheckRequest) (*configsyncv1.CheckResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := &configsyncv1.CheckResponse{Epoch: f.epoch, Leading: true, NodeId: 9}
	for _, v := range req.GetVersions() {
		if f.check != nil {
			resp.Kinds = append(resp.Kinds, f.check(entry.Kind(v.GetKind()), req.GetDeltas()))
			continue
		}
		resp.Kinds = append(resp.Kinds, &configsyncv1.KindCheck{Kind: v.GetKind(), Result: configsyncv1.CheckResult_CHECK_RESULT_CHANGED})
	}
	return resp, nil
}

func (f *fakeMaster) Fetch(req *configsyncv1.FetchRequest, stream grpc.ServerStreamingServer[configsyncv1.FetchResponse]) error {
	return f.transfer(stream.Context(), entry.Kind(req.GetKind()), func(h *configsyncv1.TransferHeader, b []byte) error {
		return stream.Send(&configsyncv1.FetchResponse{Header: h, Chunk: b})
	})
}

func (f *fakeMaster) Watch(req *configsyncv1.WatchRequest, stream grpc.ServerStreamingServer[configsyncv1.WatchResponse]) error {
	f.mu.Lock()
	over := f.over
	f.mu.Unlock()
	err := f.transfer(stream.Context(), entry.Kind(req.GetKind()), func(h *configsyncv1.TransferHeader, b []byte) error {
		return stream.Send(&configsyncv1.WatchResponse{Header: h, Chunk: b})
	})
	if err != nil {
		return err
	}
	select {
	case <-over:
	case <-stream.Context().Done():
	}
	return nil
}

func (f *fakeMaster) transfer(ctx context.Context, k entry.Kind, send sender) error {
	f.mu.Lock()
	t, answer := f.tables[k], f.answer
	f.mu.Unlock()
	if answer == nil {
		answer = whole
	}
	return answer(ctx, k, t, send)
}

func headerOf(t *table.Table) *configsyncv1.TransferHeader {
	return &configsyncv1.TransferHeader{Version: wire.TableVersion(t), Full: true, Epoch: 1}
}

// whole is the right answer.
func whole(_ context.Context, _ entry.Kind, t *table.Table, send sender) error {
	h := headerOf(t)
	for b := range chunk.Split(t.Full()) {
		if err := send(h, b); err != nil {
			return err
		}
		h = nil
	}
	return nil
}

// tableText is a table of count entries as RocketMQ writes it.
func tableText(k entry.Kind, version entry.Version, count int) string {
	var es []string
	for i := range count {
		switch k {
		case entry.Topics:
			es = append(es, fmt.Sprintf(`"Topic%04d":{"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"Topic%04d","topicSysFlag":0,"writeQueueNums":8}`, i, i))
		case entry.Groups:
			es = append(es, fmt.Sprintf(`"Group%04d":{"groupName":"Group%04d","retryMaxTimes":16}`, i, i))
		case entry.ConsumerOffsets:
			es = append(es, fmt.Sprintf(`"Topic%04d@Group%04d":{0:%d,1:7}`, i, i, 100+i))
		case entry.DelayOffsets:
			es = append(es, fmt.Sprintf(`%d:%d`, i+1, 100+i))
		}
	}
	field := map[entry.Kind]string{entry.Topics: "topicConfigTable", entry.Groups: "subscriptionGroupTable"}[k]
	if field == "" {
		field = "offsetTable"
	}
	return fmt.Sprintf(`{"dataVersion":{"counter":%d,"stateVersion":%d,"timestamp":%d},"%s":{%s}}`,
		version.Counter, version.State, version.Timestamp, field, strings.Join(es, ","))
}

func decoded(t *testing.T, k entry.Kind, version entry.Version, count int) *table.Table {
	t.Helper()
	tab, err := jsonfile.Decode(k, []byte(tableText(k, version, count)))
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestT14_AMasterThatAnswersWrong is step 2: nothing is lost, each case is counted by its reason, and the next right answer is
// taken.
func TestT14_AMasterThatAnswersWrong(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	v := entry.Version{State: 1, Counter: 10, Timestamp: 1000}
	for _, k := range entry.Kinds() {
		f.tables[k] = decoded(t, k, v, 50)
	}
	s := newNode(t, 1, slave, func(c *Config) { c.SyncTimeout, c.SyncInterval = time.Second, time.Hour })
	s.cfg.Peers = []string{s.cfg.Listen, f.addr}
	s.start()
	s.await("the first sync", func(st *configsyncv1.StatusResponse) bool {
		return !slices.ContainsFunc(st.GetKinds(), func(k *configsyncv1.KindStatus) bool {
			return k.GetState() != configsyncv1.SyncState_SYNC_STATE_IN_SYNC || k.GetVersion().GetEntries() != 50
		})
	})
	before := s.content()
	next := entry.Version{State: 1, Counter: 11, Timestamp: 2000}
	for reason, answer := range map[string]func(ctx context.Context, k entry.Kind, have *table.Table, send sender) error{
		"EMPTY_TABLE": func(ctx context.Context, k entry.Kind, _ *table.Table, send sender) error {
			return whole(ctx, k, decoded(t, k, next, 0), send)
		},
		"TABLE_NOT_WHOLE": func(_ context.Context, k entry.Kind, _ *table.Table, send sender) error {
			half := decoded(t, k, next, 3000)
			for b := range chunk.Split(half.Full()) {
				return send(headerOf(half), b) // the first of three, then the stream ends
			}
			return nil
		},
		"OLDER_VERSION": func(ctx context.Context, k entry.Kind, _ *table.Table, send sender) error {
			return whole(ctx, k, decoded(t, k, entry.Version{State: 1, Counter: 9, Timestamp: 9000}, 49), send)
		},
		"OTHER_CONTENT": func(ctx context.Context, k entry.Kind, _ *table.Table, send sender) error {
			return whole(ctx, k, decoded(t, k, v, 49), send)
		},
		"UNKNOWN_SHAPE": func(_ context.Context, k entry.Kind, have *table.Table, send sender) error {
			d := have.Full()
			d.Kind, d.To = k, next
			h := headerOf(have)
			h.Version.DataVersion = wire.Version(next)
			for b := range chunk.Split(d) {
				b = b[:len(b)-4]
				b[0] = 200 // a format of the future
				return send(h, binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
			}
			return nil
		},
		"BROKEN_CHUNK": func(_ context.Context, _ entry.Kind, have *table.Table, send sender) error {
			return send(headerOf(have), []byte("no chunk at all"))
		},
		"WRONG_KIND": func(_ context.Context, k entry.Kind, have *table.Table, send sender) error {
			h := headerOf(have)
			h.Version.Kind = wire.Kind(k%4 + 1)
			return send(h, nil)
		},
		"BAD_ANSWER": func(_ context.Context, _ entry.Kind, _ *table.Table, send sender) error {
			return send(nil, []byte("x"))
		},
		"STALLED": func(ctx context.Context, _ entry.Kind, have *table.Table, send sender) error {
			if err := send(headerOf(have), nil); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		},
		"OUT_OF_LUCK": func(context.Context, entry.Kind, *table.Table, sender) error {
			return errdefs.New(errdefs.Internal, "OUT_OF_LUCK", "an error")
		},
	} {
		f.now(answer)
		f.refused(t, s, reason)
		if after := s.content(); !maps.Equal(after, before) {
			t.Errorf("%s: the slave's tables have changed", reason)
		}
	}
	f.mu.Lock()
	for _, k := range entry.Kinds() {
		f.tables[k] = decoded(t, k, entry.Version{State: 1, Counter: 12, Timestamp: 3000}, 51)
	}
	f.mu.Unlock()
	f.now(nil)
	s.await("the next right answer", func(st *configsyncv1.StatusResponse) bool {
		return !slices.ContainsFunc(st.GetKinds(), func(k *configsyncv1.KindStatus) bool { return k.GetVersion().GetEntries() != 51 })
	})
}

// refused waits until the slave has counted a refusal for that reason, where the rule of the kind refuses at all: of offsets an
// empty table, or one with fewer, brings nothing and takes nothing.
func (f *fakeMaster) refused(t *testing.T, s *node, reason string) {
	t.Helper()
	joined := reason == "EMPTY_TABLE" || reason == "OTHER_CONTENT" || reason == "UNKNOWN_SHAPE"
	until(t, reason, func(ctx context.Context) (bool, string) {
		_, _ = s.admin().Sync(ctx, &configsyncv1.SyncRequest{}) // a session may just end
		st, err := s.admin().Status(ctx, &configsyncv1.StatusRequest{})
		if err != nil {
			return false, err.Error()
		}
		for _, k := range st.GetKinds() {
			offsets := k.GetKind() == configsyncv1.Kind_KIND_CONSUMER_OFFSETS || k.GetKind() == configsyncv1.Kind_KIND_DELAY_OFFSETS
			exempt := joined && offsets || reason == "UNKNOWN_SHAPE" && k.GetKind() != configsyncv1.Kind_KIND_TOPICS
			if k.GetRefused()[reason] == 0 && !exempt {
				return false, k.String()
			}
		}
		return true, ""
	})
}

var dataVersion = regexp.MustCompile(`"dataVersion":\{[^}]*\},?\s*`)

// content returns a node's files without their versions.
func (n *node) content() map[string]string {
	n.t.Helper()
	files := n.export()
	for name, text := range files {
		files[name] = dataVersion.ReplaceAllString(text, "")
	}
	return files
}

// TestT14_AStaleMaster: the answers of a reign that is over are not taken.
func TestT14_AStaleMaster(t *testing.T) {
	t.Parallel()
	f := newFakeMaster(t)
	for _, k := range entry.Kinds() {
		f.tables[k] = decoded(t, k, entry.Version{State: 1, Counter: 10, Timestamp: 1000}, 3)
	}
	s := newNode(t, 1, slave, func(c *Config) { c.Epoch = 2 }) // it knows of reign 2
	s.cfg.Peers = []string{s.cfg.Listen, f.addr}
	s.start()
	st := s.await("a refusal", func(st *configsyncv1.StatusResponse) bool {
		return !slices.ContainsFunc(st.GetKinds(), func(k *configsyncv1.KindStatus) bool { return k.GetRefused()["NO_MASTER"] < 2 })
	})
	for _, k := range st.GetKinds() {
		if k.GetVersion().GetEntries() != 0 || !strings.Contains(k.GetLastError(), "reign") {
			t.Errorf("%v", k)
		}
	}
}

// TestT14_NeverPoorer is steps 1, 3 and 4.
func TestT14_NeverPoorer(t *testing.T) {
	t.Parallel()
	g := group(t, 1, func(c *Config) { c.SyncInterval = 50 * time.Millisecond })
	for _, n := range g {
		n.start()
	}
	m, s := g[0].awaitOpen(), g[1]
	var names []string
	for i := range 50 {
		names = append(names, fmt.Sprintf("Topic%04d", i))
	}
	m.create(names...)
	same(t, g...)
	done := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			if got := s.app.registry.Snapshot(entry.Topics).Len(); got < 50 {
				t.Errorf("the slave had %d topics", got)
				return
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	for i := range 100 { // more than ten rounds, and a change in each
		m.create(fmt.Sprintf("More%04d", i))
	}
	same(t, g...)
	if _, err := s.admin().Sync(t.Context(), &configsyncv1.SyncRequest{}); err != nil {
		t.Error(err)
	}
	close(done)
	sampling.Wait()
	before := s.export()
	m.halt()
	s.halt()
	s.start()
	if after := s.export(); !maps.Equal(after, before) {
		t.Error("started alone, the slave has other tables")
	}
	m.start().awaitOpen()
	if _, err := m.topics().DeleteTopic(t.Context(), &configsyncv1.DeleteTopicRequest{Name: "Topic0007"}); err != nil {
		t.Fatal(err)
	}
	same(t, g...)
	got := s.names()
	if len(got) != 149 || slices.Contains(got, "Topic0007") {
		t.Errorf("%d topics after the deletion of one of 150: %v", len(got), got)
	}
}
