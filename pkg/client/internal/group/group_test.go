package group

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
)

var errAway = errdefs.New(errdefs.Unavailable, "UNREACHABLE", "cannot reach the server: away").With("address", "h:1")

func said(addr string, leads bool, term int64, leader string) heard {
	st := &ledgerv1.StatusResponse{Role: ledgerv1.Role_ROLE_FOLLOWER, Term: term, LeaderAddress: leader}
	if leads {
		st.Role = ledgerv1.Role_ROLE_LEADER
	}
	return heard{node: &Node{Addr: addr}, status: st}
}

func TestLeaderIsThatOfTheNewestTerm(t *testing.T) {
	for name, tc := range map[string]struct {
		got  []heard
		want string
	}{
		"nobody":                     {nil, ""},
		"one leads":                  {[]heard{said("a:1", false, 3, "b:1"), said("b:1", true, 3, "b:1")}, "b:1"},
		"an old leader":              {[]heard{said("a:1", true, 3, "a:1"), said("b:1", true, 4, "b:1")}, "b:1"},
		"a leader that is deposed":   {[]heard{said("a:1", true, 3, "a:1"), said("b:1", false, 4, "")}, ""},
		"in any order":               {[]heard{said("b:1", false, 4, ""), said("a:1", true, 3, "a:1")}, ""},
		"one that does not answer":   {[]heard{{err: errAway}, said("b:1", true, 4, "b:1")}, "b:1"},
		"a follower of the same one": {[]heard{said("b:1", true, 4, "b:1"), said("a:1", false, 4, "b:1")}, "b:1"},
	} {
		n := leaderOf(tc.got)
		if (n == nil) != (tc.want == "") || n != nil && n.Addr != tc.want {
			t.Errorf("%s: %v, want %q", name, n, tc.want)
		}
	}
}

func TestNamedLeaderIsOneThatWasNotAsked(t *testing.T) {
	asked := []string{"a:1", "b:1"}
	for want, got := range map[string][]heard{
		"":    {said("a:1", false, 3, "b:1"), said("b:1", false, 3, "a:1")},
		"c:1": {said("a:1", false, 3, "c:1"), said("b:1", false, 2, "d:1")},
	} {
		if addr := namedBy(got, asked); addr != want {
			t.Errorf("%q, want %q", addr, want)
		}
	}
	if addr := namedBy([]heard{said("a:1", false, 3, "nonsense"), {err: errAway}}, asked); addr != "" {
		t.Errorf("%q", addr)
	}
}

func TestNoLeaderSaysWhy(t *testing.T) {
	err := noLeader([]heard{said("b:1", false, 3, ""), {err: errAway}, said("a:1", false, 3, "")})
	const want = "no node leads the group: a:1 is a follower, b:1 is a follower, h:1 is not reached (away)"
	if !errors.Is(err, ErrNoLeader) || err.Error() != want {
		t.Errorf("%v", err)
	}
	if err := noLeader([]heard{{err: errAway}}); !errors.Is(err, errAway) {
		t.Errorf("%v", err)
	}
}

func TestNamed(t *testing.T) {
	for err, want := range map[*errdefs.Error]string{
		ErrNotLeader: "", ErrNotLeader.With("leader_address", "a:1"): "a:1", ErrNotLeader.With("leader_address", "a"): "",
		ErrNoLeader.With("leader_address", "a:1"): "",
	} {
		if got := Named(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestRetryLastsUntilTheDeadline(t *testing.T) {
	for _, tc := range []struct{ limit, least, most time.Duration }{
		{10 * time.Second, 9900 * time.Millisecond, 10 * time.Second}, {time.Second, 900 * time.Millisecond, time.Second}, {-1, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := NewRetry(nil, tc.limit, nil)
			for ; ; r.tries++ {
				pause, ok := r.pause(nil)
				if !ok || !sleep.For(t.Context(), pause) {
					break
				}
			}
			if took := time.Since(began); took < tc.least || took > tc.most {
				t.Errorf("limit %v: given up after %v and %d tries", tc.limit, took, r.tries)
			}
		})
	}
}
