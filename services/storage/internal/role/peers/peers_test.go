package peers

import (
	"context"
	"errors"
	"testing"

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
