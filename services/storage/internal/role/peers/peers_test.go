package peers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// mute answers every peer with its error.
type mute struct {
	Peers
	errs map[string]error
}

func (m mute) Promise(_ context.Context, addr string, _ epoch.PromiseRequest) (epoch.Heard, error) {
	return epoch.Heard{}, m.errs[addr]
}

// Absent names each peer with what is wrong, and no more than that.
func TestAbsent(t *testing.T) {
	unreachable := errdefs.New(errdefs.Unavailable, "UNREACHABLE", "cannot reach the server: dial tcp a:1: connect: connection refused").
		With("address", "a:1").WithRemedy("check the address")
	s := Set{Others: []string{"a:1", "b:1", "c:1", "d:1"}, Timeout: 1 << 40, Peers: mute{errs: map[string]error{
		"a:1": unreachable,
		"b:1": unreachable.WithMsg("cannot reach the server: error reading server preface: EOF").WithRemedy("is it the raw port?"),
		"c:1": errdefs.New(errdefs.FailedPrecondition, "WRONG_CLUSTER", "another cluster").With("cluster", "x").WithRemedy("check it"),
		"d:1": errors.New("something else"),
	}}}
	want := "; no answer from a:1 (connection refused), b:1 (EOF: is it the raw port?), c:1 (another cluster (cluster=x); check it), d:1 (something else)"
	if got := s.Hear(t.Context(), epoch.Promise{}).Absent(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// shy answers nobody before it is up.
type shy struct {
	Peers
	up atomic.Bool
}

func (s *shy) Promise(_ context.Context, addr string, _ epoch.PromiseRequest) (epoch.Heard, error) {
	if !s.up.Load() || addr != "b:1" {
		return epoch.Heard{}, errors.New("not up")
	}
	return epoch.Heard{NodeID: 1}, nil
}

// TestHas: a member is known by its address; one that goes by another name by its id, as soon as it is heard, and then for good. Who
// is neither is no member, however long one looks.
func TestHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &shy{}
		s := Set{Peers: p, Others: []string{"b:1", "c:1"}, Timeout: time.Second, Seen: new(sync.Map)}
		if !s.Has(ctx, "c:1", 2) || !(Set{}).Has(ctx, "x:1", 9) {
			t.Error("a member by its address, or any node where there is no set, is not known")
		}
		if s.Has(ctx, "localhost:1", 1) || s.Joins(ctx, true, "c:1", 2, time.Second) != nil {
			t.Error("a node that was not heard is known by its id")
		}
		member, stranger := s.Joins(ctx, false, "localhost:1", 1, time.Second), s.Joins(ctx, false, "x:1", 9, time.Second)
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		select {
		case <-member:
			t.Error("it joined before it was heard")
		default:
		}
		p.up.Store(true)
		<-member
		p.up.Store(false)
		if !s.Has(ctx, "localhost:1", 1) || s.Has(ctx, "x:1", 9) {
			t.Error("who was heard is forgotten, or a stranger known")
		}
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		select {
		case <-stranger:
			t.Error("a stranger has joined")
		default:
		}
		cancel()
	})
}
