package slave

import (
	"errors"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// A reason in Status is a word: why a peer is not reached stands in front of the remedy.
func TestRemedySaysWhyAPeerIsNotReached(t *testing.T) {
	unreached := errdefs.New(errdefs.Unavailable, "UNREACHABLE", "cannot reach the server: dial tcp: lookup nowhere: no such host").WithRemedy("check the host's name")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{unreached, "no such host: check the host's name"},
		{unreached.WithMsg("cannot reach the server: no answer from a:1 within 5s"), "no answer from a:1 within 5s: check the host's name"},
		{
			errdefs.New(errdefs.Unavailable, "CONNECT_FAILED", "cannot connect").Wrap(errors.New("dial tcp 10.0.0.1:10912: connect: connection refused")),
			"connection refused: " + General("CONNECT_FAILED"),
		},
		{ErrForgotten, ErrForgotten.Remedy},
	} {
		if got := Remedy(tc.err); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.err, got, tc.want)
		}
	}
}
