package topicstest

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// ErrEnded is what a stream gets that EndStreams ends.
var ErrEnded = errdefs.New(errdefs.Unavailable, "ENDED", "the test has ended the stream")

// Watcher answers one Watch by itself.
type Watcher func(req *configsyncv1.WatchRequest, send func(*configsyncv1.WatchResponse) error) error

// Fake is the service. All methods may be called concurrently.
type Fake struct {
	configsyncv1.UnimplementedConfigSyncServiceServer
	configsyncv1.UnimplementedTopicServiceServer

	mu      sync.Mutex
	table   map[string]chunk.Topic
	version chunk.Version
	history []change
	changed chan struct{} // closed at each change
	ended   chan struct{} // closed by EndStreams
	next    []Watcher
	create  func(context.Context, string) error
	creates map[string]int
	watches []*configsyncv1.WatchRequest
}

type change struct {
	from, to chunk.Version
	names    []string
}

// New makes a service with an empty table.
func New() *Fake {
	return &Fake{
		table: map[string]chunk.Topic{}, changed: make(chan struct{}), ended: make(chan struct{}), creates: map[string]int{},
		version: chunk.Version{State: 1, Counter: 1},
	}
}

// Start serves on ln until stop is called, or the test ends.
func (f *Fake) Start(t testing.TB, ln net.Listener) (stop func()) {
	t.Helper()
	server, err := grpcx.NewServer(grpcx.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	configsyncv1.RegisterConfigSyncServiceServer(server, f)
	configsyncv1.RegisterTopicServiceServer(server, f)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		f.EndStreams()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("fake configsync: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Set adds or changes topics, as one change.
func (f *Fake) Set(ts ...chunk.Topic) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(ts...)
}

func (f *Fake) set(ts ...chunk.Topic) {
	var names []string
	for _, t := range ts {
		f.table[t.Name] = t
		names = append(names, t.Name)
	}
	f.publish(names)
}

// Delete removes topics, as one change.
func (f *Fake) Delete(names ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		delete(f.table, name)
	}
	f.publish(names)
}

// Lose forgets the table and all about it, as a node does that has lost its folder.
func (f *Fake) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.table)
	f.version = chunk.Version{State: f.version.State + 1}
	f.history = nil
	f.wake()
}

// Forget has the next transfers be whole tables: what they come from is not known any more.
func (f *Fake) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.history = nil
}

func (f *Fake) publish(names []string) {
	from := f.version
	f.version.Counter++
	f.history = append(f.history, change{from, f.version, names})
	f.wake()
}

func (f *Fake) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// EndStreams ends the streams that there are.
func (f *Fake) EndStreams() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.ended)
	f.ended = make(chan struct{})
}

// Next has the next Watch answered by w.
func (f *Fake) Next(w Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, w)
}

// OnCreate is called before a topic is created, which an error refuses; nil: nothing is.
func (f *Fake) OnCreate(do func(ctx context.Context, topic string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.create = do
}

// Creates is how often the topic's creation was asked for.
func (f *Fake) Creates(topic string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.creates[topic]
}

// Topic returns a topic of the table.
func (f *Fake) Topic(name string) (chunk.Topic, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.table[name]
	return t, ok
}

// Watches are the requests so far.
func (f *Fake) Watches() []*configsyncv1.WatchRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.watches)
}

// CreateTopic implements TopicService.
func (f *Fake) CreateTopic(ctx context.Context, req *configsyncv1.CreateTopicRequest) (*configsyncv1.CreateTopicResponse, error) {
	t := req.GetTopic()
	f.mu.Lock()
	f.creates[t.GetName()]++
	do := f.create
	f.mu.Unlock()
	if do != nil {
		if err := do(ctx, t.GetName()); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.table[t.GetName()]; ok {
		return nil, errdefs.New(errdefs.AlreadyExists, "ENTRY_EXISTS", "the entry is there already")
	}
	f.set(chunk.Topic{
		Name: t.GetName(), ReadQueues: t.GetReadQueues(), WriteQueues: t.GetWriteQueues(), Perm: chunk.PermRead | chunk.PermWrite,
	})
	return &configsyncv1.CreateTopicResponse{Topic: t, TableVersion: wire(f.version)}, nil
}

func wire(v chunk.Version) *configsyncv1.DataVersion {
	return &configsyncv1.DataVersion{StateVersion: v.State, Counter: v.Counter, Timestamp: v.Timestamp}
}

// Header is the header of a transfer of d.
func Header(d *chunk.Delta) *configsyncv1.TransferHeader {
	return &configsyncv1.TransferHeader{
		Full: d.Full, Version: &configsyncv1.TableVersion{Kind: configsyncv1.Kind_KIND_TOPICS, DataVersion: wire(d.To), Sum: d.Sum},
	}
}

// Watch implements ConfigSyncService.
func (f *Fake) Watch(req *configsyncv1.WatchRequest, stream grpc.ServerStreamingServer[configsyncv1.WatchResponse]) error {
	f.mu.Lock()
	f.watches = append(f.watches, req)
	var w Watcher
	if len(f.next) > 0 {
		w, f.next = f.next[0], f.next[1:]
	}
	ended := f.ended
	f.mu.Unlock()
	if w != nil {
		return w(req, stream.Send)
	}
	var have *chunk.Version
	if h := req.GetHave(); h != nil {
		v := h.GetDataVersion()
		have = &chunk.Version{State: v.GetStateVersion(), Counter: v.GetCounter(), Timestamp: v.GetTimestamp()}
	}
	for first := true; ; first = false {
		d, changed := f.transfer(have)
		if err := send(d, first, stream.Send); err != nil {
			return err
		}
		have = &d.To
		select {
		case <-changed:
		case <-ended:
			return ErrEnded
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// send sends d; a whole table that is no news is not in it.
func send(d *chunk.Delta, first bool, send func(*configsyncv1.WatchResponse) error) error {
	h := Header(d)
	if !d.Full && d.From == d.To {
		if h.Unchanged = true; !first {
			return nil
		}
		return send(&configsyncv1.WatchResponse{Header: h})
	}
	for _, b := range Chunks(d, max(2, (len(d.Topics)+len(d.Deleted))/100)) {
		if err := send(&configsyncv1.WatchResponse{Header: h, Chunk: b}); err != nil {
			return err
		}
		h = nil
	}
	return nil
}

// transfer is what leads from have to the table, and what is closed when there is more.
func (f *Fake) transfer(have *chunk.Version) (*chunk.Delta, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &chunk.Delta{To: f.version, Sum: uint64(f.version.Counter)} //nolint:gosec // any number does
	at := slices.IndexFunc(f.history, func(c change) bool { return have != nil && c.from == *have })
	names := map[string]bool{}
	switch {
	case have != nil && *have == f.version:
		d.From = *have
	case at >= 0:
		d.From = *have
		for _, c := range f.history[at:] {
			for _, name := range c.names {
				names[name] = true
			}
		}
	default:
		d.Full = true
		for name := range f.table {
			names[name] = true
		}
		for _, c := range f.history { // deletions are told even so
			for _, name := range c.names {
				names[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if t, ok := f.table[name]; ok {
			d.Topics = append(d.Topics, t)
		} else {
			d.Deleted = append(d.Deleted, name)
		}
	}
	return d, f.changed
}
