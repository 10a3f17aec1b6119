package topics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/services/storage/internal/topics"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
	"github.com/tandemlog/tandem/services/storage/internal/topics/topicstest"
)

// The tests run in bubbles: what they wait for is that nothing moves any more, and time passes only where they say so.

const (
	home  = "configsync:1"
	other = "configsync:2"
)

// rig is a view and the services that it may call.
type rig struct {
	*topics.View
	t    *testing.T
	fake *topicstest.Fake
	log  bytes.Buffer // read when nothing moves

	mu       sync.Mutex // guards the following
	lns      map[string]*bufconn.Listener
	mayNot   error
	stopHome func()
}

// newRig makes a view that runs; its service is up or is not yet.
func newRig(t *testing.T, up bool, change func(*topics.Options)) *rig {
	t.Helper()
	r := &rig{t: t, fake: topicstest.New(), lns: map[string]*bufconn.Listener{}}
	if up {
		r.up()
	}
	o := topics.Options{
		Cluster: "c", BrokerName: "b", NodeID: 3, Address: home, Queues: 5, AutoCreate: true,
		MayCreate: func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.mayNot
		},
		Dial: func(addr string) (*grpc.ClientConn, error) {
			return grpcx.Dial(addr, grpcx.ClientOptions{Dial: r.dial})
		},
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	}
	if change != nil {
		change(&o)
	}
	var err error
	if r.View, err = topics.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, r.Close()); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return r
}

func (r *rig) dial(ctx context.Context, addr string) (net.Conn, error) {
	r.mu.Lock()
	ln := r.lns[addr]
	r.mu.Unlock()
	if ln == nil {
		return nil, errors.New("nobody listens")
	}
	return ln.DialContext(ctx)
}

// serve starts f at addr.
func (r *rig) serve(addr string, f *topicstest.Fake) (stop func()) {
	ln := bufconn.Listen(1 << 20)
	r.mu.Lock()
	r.lns[addr] = ln
	r.mu.Unlock()
	return f.Start(r.t, ln)
}

func (r *rig) up() { r.stopHome = r.serve(home, r.fake) }

func (r *rig) down() {
	r.mu.Lock()
	delete(r.lns, home)
	r.mu.Unlock()
	r.stopHome()
	synctest.Wait()
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// set changes topics; the view has them when it returns, without any time.
func (r *rig) set(ts ...chunk.Topic) {
	r.fake.Set(ts...)
	synctest.Wait()
}

func topic(name string, read, write, perm int32) chunk.Topic {
	return chunk.Topic{Name: name, ReadQueues: read, WriteQueues: write, Perm: perm}
}

// wantQueues fails the test unless the topic has so many queues for puts.
func (r *rig) wantQueues(name string, want int) {
	r.t.Helper()
	if n, err := r.WriteQueues(r.t.Context(), name); n != want || err != nil {
		r.t.Errorf("%s has %d write queues, want %d: %v", name, n, want, err)
	}
}

// wantRefused fails the test unless err has the reason and class and, but for the last argument, a remedy.
func wantRefused(t *testing.T, what string, err error, want *errdefs.Error) {
	t.Helper()
	if e := errdefs.As(err); e == nil || !errors.Is(e, want) || e.Field != "topic" || e.Meta["topic"] == "" {
		t.Errorf("%s: %v, want %s of field topic", what, err, want.Reason)
	}
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestQueuesAndPermissions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		r.set(topic("T", 4, 8, 6), topic("mute", 4, 8, 4), topic("blind", 4, 8, 2), topic("none", 4, 0, 6))
		r.wantQueues("T", 8)
		if err := r.CheckRead("T", 3); err != nil {
			t.Error(err)
		}
		if e := errdefs.As(r.CheckRead("T", 4)); e == nil || e.Field != "queue_id" || e.Class != errdefs.InvalidArgument || e.Remedy == "" {
			t.Errorf("a queue behind the last read queue: %v", e)
		}
		_, err := r.WriteQueues(t.Context(), "mute")
		wantRefused(t, "a put without permission", err, topics.ErrNoPermission)
		if e := errdefs.As(err); e.Meta["perm"] != "4" || e.Remedy == "" {
			t.Errorf("%v", err)
		}
		wantRefused(t, "a get without permission", r.CheckRead("blind", 0), topics.ErrNoPermission)
		_, err = r.WriteQueues(t.Context(), "none")
		wantRefused(t, "a put without queues", err, topics.ErrNoQueues)
		r.wantQueues("blind", 8)
		if err := errors.Join(r.CheckRead("mute", 0), r.CheckRead("unknown", 99)); err != nil {
			t.Error(err)
		}
		began := time.Now()
		r.set(topic("T", 16, 16, 6))
		r.wantQueues("T", 16)
		if err := r.CheckRead("T", 15); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("a topic has grown after %v", d)
		}
	})
}

// TestFollowsEveryChange holds the view against a map through random changes, some of which come as whole tables.
func TestFollowsEveryChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, func(o *topics.Options) { o.AutoCreate = false })
		rng := rand.New(rand.NewPCG(1, 2))
		model := map[string]int{}
		for range 300 {
			name := fmt.Sprint("t", rng.IntN(60))
			switch rng.IntN(5) {
			case 0:
				r.fake.Delete(name)
				delete(model, name)
			case 1:
				r.fake.EndStreams()
				if rng.IntN(2) == 0 {
					r.fake.Forget()
				}
				pass(2 * time.Second)
			default:
				n := 1 + rng.IntN(20)
				r.fake.Set(topic(name, 1, int32(n), 6))
				model[name] = n
			}
			synctest.Wait()
			for i := range 60 {
				name := fmt.Sprint("t", i)
				n, err := r.WriteQueues(t.Context(), name)
				if n != model[name] || (err == nil) != (n > 0) || err != nil && !errors.Is(err, topics.ErrNotFound) {
					t.Fatalf("%s has %d queues, want %d: %v", name, n, model[name], err)
				}
			}
			if st := r.State(); st.Topics != len(model) || !st.Current || !st.Known {
				t.Fatalf("%+v, want %d topics", st, len(model))
			}
		}
	})
}

// TestShrinks: topics go when the table says so, all of them too; not because a table is empty.
func TestShrinks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, func(o *topics.Options) { o.AutoCreate = false })
		r.set(topic("A", 8, 8, 6), topic("B", 8, 8, 6))
		r.set(topic("A", 2, 2, 6))
		r.wantQueues("A", 2)
		if err := r.CheckRead("A", 2); errdefs.As(err) == nil {
			t.Errorf("a queue that is gone: %v", err)
		}
		r.fake.Delete("A")
		synctest.Wait()
		_, err := r.WriteQueues(t.Context(), "A")
		wantRefused(t, "a deleted topic", err, topics.ErrNotFound)
		if err := r.CheckRead("A", 7); err != nil {
			t.Errorf("what a deleted topic has is read: %v", err)
		}
		r.fake.Lose()
		pass(5 * time.Second)
		if st := r.State(); st.Current || st.Reason != "EMPTY_TABLE" || st.Remedy == "" || st.Topics != 1 {
			t.Errorf("after an empty table: %+v", st)
		}
		r.wantQueues("B", 8)
		r.fake.Set(topic("C", 3, 3, 6))
		pass(5 * time.Second)
		r.wantQueues("C", 3)
		if st := r.State(); !st.Current || st.Topics != 1 {
			t.Errorf("%+v", st)
		}
		r.fake.EndStreams()
		r.fake.Delete("C") // meanwhile
		pass(5 * time.Second)
		if st := r.State(); !st.Current || st.Topics != 0 {
			t.Errorf("after the last topic was deleted: %+v", st)
		}
	})
}

// TestBadAnswers: whatever a stream brings, or does not, the view stays as it was, says why, and goes on.
func TestBadAnswers(t *testing.T) {
	d := &chunk.Delta{Full: true, To: chunk.Version{State: 9, Counter: 9}, Topics: []chunk.Topic{topic("X", 1, 1, 6), topic("Y", 1, 1, 6)}}
	parts := topicstest.Chunks(d, 1)
	h := topicstest.Header(d)
	type answers = []*configsyncv1.WatchResponse
	delta := *d
	delta.Full, delta.From = false, chunk.Version{State: 8}
	wrongKind := topicstest.Header(d)
	wrongKind.Version.Kind = configsyncv1.Kind_KIND_DELAY_OFFSETS
	lie := topicstest.Header(d)
	lie.Version.Sum++
	broken := bytes.Clone(parts[0])
	broken[20] ^= 1
	for reason, as := range map[string]answers{
		"TABLE_NOT_WHOLE": {{Header: h, Chunk: parts[1]}},
		"STREAM_ENDED":    {{Header: h, Chunk: parts[0]}},
		"BROKEN_CHUNK":    {{Header: h, Chunk: broken}},
		"DELTA_GAP":       {{Header: topicstest.Header(&delta), Chunk: topicstest.Chunks(&delta, 9)[0]}},
		"STALLED":         {{Header: h, Chunk: parts[0]}, nil},
		"BAD_ANSWER":      {{Chunk: parts[0]}},
		"BAD_ANSWER 2":    {{Header: h, Chunk: parts[0]}, {Header: h, Chunk: parts[1]}},
		"BAD_ANSWER 3":    {{Header: wrongKind, Chunk: parts[0]}},
		"BAD_ANSWER 4":    {{Header: lie, Chunk: parts[0]}, {Chunk: parts[1]}},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, true, nil)
				r.set(topic("T", 4, 8, 6))
				gone := make(chan struct{})
				r.fake.Next(func(_ *configsyncv1.WatchRequest, send func(*configsyncv1.WatchResponse) error) error {
					for _, a := range as {
						if a == nil {
							<-gone
							return topicstest.ErrEnded
						}
						if err := send(a); err != nil {
							return err
						}
					}
					return nil
				})
				hold := make(chan struct{})
				r.fake.Next(func(*configsyncv1.WatchRequest, func(*configsyncv1.WatchResponse) error) error {
					<-hold // so that the state can be looked at
					return topicstest.ErrEnded
				})
				r.fake.EndStreams()
				pass(9 * time.Second)
				if reason == "STALLED" {
					pass(3 * time.Second)
				}
				want, _, _ := strings.Cut(reason, " ")
				if st := r.State(); st.Current || !st.Known || st.Reason != want || st.Remedy == "" || st.Topics != 1 {
					t.Errorf("%+v", st)
				}
				r.wantQueues("T", 8)
				if n := strings.Count(r.log.String(), "is not followed"); n != 2 { // the end of the first stream is another reason
					t.Errorf("the log says %d times that the table is not followed:\n%s", n, r.log.String())
				}
				close(hold)
				close(gone)
				r.fake.Set(topic("T", 9, 9, 6))
				pass(20 * time.Second)
				r.wantQueues("T", 9)
				if st := r.State(); !st.Current || st.Reason != "" {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// TestRestarts: the last view holds while the service is away, and then only what has changed is asked for.
func TestRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, true, nil)
		r.set(topic("T", 4, 8, 6), topic("mute", 1, 1, 4))
		r.down()
		pass(time.Minute)
		if st := r.State(); st.Current || !st.Known || st.Topics != 2 || st.Reason == "" || st.Remedy == "" {
			t.Errorf("without the service: %+v", st)
		}
		r.wantQueues("T", 8)
		_, err := r.WriteQueues(t.Context(), "mute")
		wantRefused(t, "a put without permission", err, topics.ErrNoPermission)
		began := time.Now()
		_, err = r.WriteQueues(t.Context(), "new")
		wantRefused(t, "a new topic", err, topics.ErrNotCreated)
		if d := time.Since(began); d != 5*time.Second || errdefs.As(err).RetryAfter == 0 {
			t.Errorf("after %v: %v", d, err)
		}
		r.fake.Set(topic("T", 4, 9, 6))
		before := len(r.fake.Watches())
		r.up()
		pass(4 * time.Second)
		r.wantQueues("T", 9)
		r.wantQueues("new", 5)
		asked := r.fake.Watches()[before:]
		if v := asked[0].GetHave().GetDataVersion(); len(asked) != 1 || v.GetCounter() != 2 {
			t.Errorf("it asks %d times, first from %v", len(asked), v)
		}
		c := asked[0].GetCaller()
		if c.GetCluster() != "c" || c.GetBrokerName() != "b" || c.GetNodeId() != 3 || !c.GetAnyRole() || c.GetOpening() {
			t.Errorf("caller %v", c)
		}
	})
}

// TestNoTableYet: a storage starts without its configsync, and says once by which rule it works.
func TestNoTableYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, false, func(o *topics.Options) { o.AutoCreate = false })
		r.fake.Set(topic("T", 4, 2, 6), topic("mute", 1, 1, 4))
		for range 100 {
			r.wantQueues("T", 5)
			r.wantQueues("mute", 5)
			if err := r.CheckRead("T", 4); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := r.WriteQueues(t.Context(), ""); err == nil {
			t.Errorf("a topic without a name: %d", n)
		}
		pass(3 * time.Second)
		if n := strings.Count(r.log.String(), "is not known yet"); n != 1 {
			t.Errorf("the log says %d times that there is no table:\n%s", n, r.log.String())
		}
		if st := r.State(); st.Known || st.Current || st.Topics != 0 || st.Address != home || st.Reason == "" {
			t.Errorf("%+v", st)
		}
		r.up()
		pass(4 * time.Second)
		r.wantQueues("T", 2)
		_, err := r.WriteQueues(t.Context(), "mute")
		wantRefused(t, "a put without permission", err, topics.ErrNoPermission)
		_, err = r.WriteQueues(t.Context(), "new")
		wantRefused(t, "a new topic", err, topics.ErrNotFound)
	})
}
