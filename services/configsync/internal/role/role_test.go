package role

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/syncer"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

const peer = "peer:1"

// node is a manager between fakes.
type node struct {
	*Manager

	mu       sync.Mutex
	role     storage.Role
	changed  *watermark.Mark
	flush    func() error                              // of the tables
	ask      func(opening bool) (syncer.Answer, error) // the peer
	told     fakeTold
	followed chan struct{} // what a slave still does at its end
	ended    chan error    // Run's
	resigned bool
}

func (n *node) Role() storage.Role {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.role
}

func (n *node) Changed() *watermark.Mark { return n.changed }

// become has the node's storage say what it is.
func (n *node) become(r storage.Role) {
	n.mu.Lock()
	n.role = r
	n.mu.Unlock()
	n.changed.Advance(n.changed.Load() + 1)
}

type fakeTables struct{ n *node }

func (fakeTables) Snapshot(k entry.Kind) *table.Table { return table.New(k) }
func (fakeTables) Whole(entry.Kind) error             { return nil }
func (fakeTables) Fault() error                       { return nil }
func (fakeTables) SetEpoch(int64)                     {}
func (t fakeTables) Resign()                          { t.n.resigned = true }
func (fakeTables) Lead(context.Context, int64) error  { return nil }

func (fakeTables) Join(context.Context, *table.Table) (table.Report, error) {
	return table.Report{}, nil
}

func (fakeTables) ClampOffsets(context.Context, func(string, int32) (int64, bool)) (int, error) {
	return 0, nil
}

func (t fakeTables) Flush(context.Context) error {
	if t.n.flush == nil {
		return nil
	}
	return t.n.flush()
}

type fakePeers struct{ n *node }

func (p fakePeers) Ask(_ context.Context, _ string, opening bool) (syncer.Answer, error) {
	if p.n.ask == nil {
		return syncer.Answer{}, nil
	}
	return p.n.ask(opening)
}

func (fakePeers) Pull(_ context.Context, _ string, k entry.Kind) (*table.Table, error) {
	return table.New(k), nil
}

type fakeFollower struct{ n *node }

func (f fakeFollower) Follow(ctx context.Context) error {
	<-ctx.Done()
	if f.n.followed != nil {
		<-f.n.followed
	}
	return nil
}

func (fakeFollower) Master() string { return "" }
func (fakeFollower) Epoch() int64   { return 0 }

// fakeTold is what a peer told, as the disk keeps it.
type fakeTold struct {
	reign int64
	err   error
}

func (f *fakeTold) Reign() int64 { return f.reign }

func (f *fakeTold) Save(reign int64) error {
	if f.err == nil {
		f.reign = max(f.reign, reign)
	}
	return f.err
}

// run starts the manager; its end is no later than the test's.
func (n *node) run(t *testing.T, r storage.Role) {
	t.Helper()
	n.role, n.changed, n.ended = r, watermark.New(0), make(chan error, 1)
	o := Options{Address: "own:1", Peers: []string{peer}, StartWait: time.Second, MinBackoff: 10 * time.Millisecond, MaxBackoff: 100 * time.Millisecond}
	n.Manager = New(o, n, fakeTables{n}, fakePeers{n}, fakeFollower{n}, &n.told, nil)
	go func() { n.ended <- n.Run(t.Context()) }()
}

// fence has the peer tell of a reign; the channel is closed when it got its answer.
func (n *node) fence(t *testing.T, epoch int64) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Fence(t.Context(), peer, epoch); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return done
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestFenceAwaitsWhatAMasterTakes: whoever is answered has all that the node took, and the node takes nothing after it, also when
// the node has heard of the reign in another way before.
func TestFenceAwaitsWhatAMasterTakes(t *testing.T) {
	for name, heardBefore := range map[string]bool{"told": false, "heard before": true} {
		t.Run(name, func(t *testing.T) {
			var n node
			var late atomic.Bool
			n.ask = func(opening bool) (syncer.Answer, error) {
				if !opening && late.Load() {
					return syncer.Answer{Epoch: 5, Differ: map[entry.Kind]entry.Version{entry.ConsumerOffsets: {State: 5}}}, nil
				}
				return syncer.Answer{}, errdefs.New(errdefs.Unavailable, "UNREACHABLE", "by the test")
			}
			n.run(t, storage.Role{Master: true, Epoch: 4, Start: -1})
			if err := n.Reigns().Wait(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if err := n.Enter(); err != nil { // a change is on its way
				t.Fatal(err)
			}
			late.Store(heardBefore)
			for heardBefore && n.refusal.Load() == nil {
				<-time.After(time.Millisecond)
			}
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if err := n.Fence(ctx, peer, 5); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the peer is answered while a change is on its way: %v", err)
				}
			}
			n.Leave()
			if err := n.Fence(t.Context(), peer, 5); err != nil {
				t.Errorf("the peer is not answered: %v", err)
			}
			if err := n.Enter(); !errors.Is(err, ErrNotMaster) {
				t.Errorf("a change after the answer: %v", err)
			}
		})
	}
}

// TestFenceAwaitsWhatASlaveTakes: a transfer of the lower reign's master that is being saved is among what the node shows.
func TestFenceAwaitsWhatASlaveTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{followed: make(chan struct{})}
		n.run(t, storage.Role{Epoch: 4, Start: -1})
		synctest.Wait()
		first := n.fence(t, 5)
		again := n.fence(t, 5)
		if closed(first) || closed(again) {
			t.Error("the peer is answered while the slave takes what a lower reign sent")
		}
		close(n.followed)
		synctest.Wait()
		if !closed(first) || !closed(again) {
			t.Error("the peer is not answered")
		}
		if n.Floor() != 5 {
			t.Errorf("follows reign %d", n.Floor())
		}
	})
}

// TestFenceEndsWithItsCaller: and the next one waits anew.
func TestFenceEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{followed: make(chan struct{})}
		n.run(t, storage.Role{Epoch: 4, Start: -1})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Fence(ctx, peer, 5); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answered %v", err)
		}
		again := n.fence(t, 5)
		if closed(again) {
			t.Error("answered")
		}
		close(n.followed)
		<-again
	})
}

// TestFenceOutlivesARestart: the peer relies on it also where the node's storage has not heard of the reign when the node starts again,
// and the peer cannot be asked.
func TestFenceOutlivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := storage.Role{Master: true, Epoch: 4, Start: -1}
		var n node
		n.run(t, before)
		<-time.After(2 * time.Second)
		if _, _, err := n.Reign(); err != nil {
			t.Fatal(err)
		}
		<-n.fence(t, 5)
		again := node{told: n.told, ask: func(bool) (syncer.Answer, error) {
			return syncer.Answer{}, errdefs.New(errdefs.Unavailable, "UNREACHABLE", "by the test")
		}}
		again.run(t, before)
		<-time.After(time.Minute)
		if _, _, err := again.Reign(); !errors.Is(err, ErrNotMaster) || errdefs.As(err).Meta["reason"] != "OUTLIVED" || again.Floor() != 5 {
			t.Errorf("a change after the restart: %v; it follows from reign %d on", err, again.Floor())
		}
		again.become(storage.Role{Master: true, Epoch: 6, Start: -1})
		<-time.After(time.Minute)
		if epoch, _, err := again.Reign(); epoch != 6 || err != nil {
			t.Errorf("leads in %d, %v", epoch, err)
		}
	})
}

// TestFenceBeyondAllBounds: what nobody can have counted up to is not believed, and the node goes on.
func TestFenceBeyondAllBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n node
		n.run(t, storage.Role{Master: true, Epoch: 4, Start: -1})
		<-time.After(2 * time.Second)
		for _, epoch := range []int64{math.MaxInt64, 4 + farthest + 1} {
			if err := n.Fence(t.Context(), peer, epoch); !errors.Is(err, ErrTooFar) {
				t.Errorf("%d: %v", epoch, err)
			}
		}
		if err := n.Enter(); err != nil || n.told.Reign() != 0 {
			t.Errorf("told of %d; a change: %v", n.told.Reign(), err)
		} else {
			n.Leave()
		}
		<-n.fence(t, 4+farthest)
		if n.Floor() != 4+farthest {
			t.Errorf("follows from reign %d on", n.Floor())
		}
	})
}

// TestFenceOnAFullDisk: the peer learns what the node has, which takes no changes any more.
func TestFenceOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{told: fakeTold{err: errdefs.New(errdefs.ResourceExhausted, "DISK_FULL", "no room")}}
		n.run(t, storage.Role{Master: true, Epoch: 4, Start: -1})
		<-time.After(2 * time.Second)
		if _, _, err := n.Reign(); err != nil {
			t.Fatal(err)
		}
		<-n.fence(t, 5)
		if err := n.Enter(); !errors.Is(err, ErrNotMaster) {
			t.Errorf("a change: %v", err)
		}
	})
}

// TestFenceLeavesAHigherReign: a peer of a lower reign does not have a node begin to hear its peers again.
func TestFenceLeavesAHigherReign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n node
		asked := 0
		n.ask = func(bool) (syncer.Answer, error) {
			asked++
			<-time.After(500 * time.Millisecond)
			return syncer.Answer{}, nil
		}
		n.run(t, storage.Role{Master: true, Epoch: 5, Start: -1})
		synctest.Wait()
		<-n.fence(t, 4)
		<-time.After(time.Second)
		if epoch, _, err := n.Reign(); epoch != 5 || err != nil || asked != 1 {
			t.Errorf("leads in %d, %v; the peer was asked %d times", epoch, err, asked)
		}
	})
}

// TestAPeersFaultIsNotTheOwn: a peer whose disk has failed keeps nobody from leading.
func TestAPeersFaultIsNotTheOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n node
		n.ask = func(bool) (syncer.Answer, error) {
			return syncer.Answer{}, errdefs.New(errdefs.Unavailable, "REGISTRY_FAULTED", "the disk failed, nothing is saved any more")
		}
		n.run(t, storage.Role{Master: true, Epoch: 5, Start: -1})
		<-time.After(2 * time.Second)
		select {
		case err := <-n.ended:
			t.Fatalf("the node ends: %v", err)
		default:
		}
		if epoch, _, err := n.Reign(); epoch != 5 || err != nil {
			t.Errorf("leads in %d, %v", epoch, err)
		}
	})
}

// TestAFullDiskAtTheEndOfAReign: what was gathered stays so, and is saved when there is room; the node follows.
func TestAFullDiskAtTheEndOfAReign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := node{flush: func() error { return errdefs.New(errdefs.ResourceExhausted, "DISK_FULL", "no room") }}
		n.run(t, storage.Role{Master: true, Epoch: 4, Start: -1})
		<-time.After(2 * time.Second)
		if _, _, err := n.Reign(); err != nil {
			t.Fatal(err)
		}
		n.become(storage.Role{Epoch: 5, Start: -1})
		synctest.Wait()
		select {
		case err := <-n.ended:
			t.Fatalf("the node ends: %v", err)
		default:
		}
		if err := n.Enter(); !errors.Is(err, ErrNotMaster) || !n.resigned {
			t.Errorf("a change: %v; resigned: %v", err, n.resigned)
		}
	})
}
