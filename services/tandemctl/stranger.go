package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// maxHangUps is how many tries that end so prove that it is no storage which is just being started or stopped.
const maxHangUps = 3

var (
	hangUp  = regexp.MustCompile("error reading server preface|broken pipe|connection reset by peer")
	ownPort = regexp.MustCompile(`\S+->`) // of a connection, another one each time
)

// noStorage reports whether all that was tried hung up before it spoke gRPC, and nothing has got through before.
func (t *tally) noStorage(err error) bool {
	return t.total == 0 && !slices.ContainsFunc(flatten(err), func(one error) bool {
		return errdefs.ReasonOf(one) != client.ErrUnreachable.Reason || !hangUp.MatchString(one.Error())
	})
}

// whyUnreached is the end of an UNREACHABLE error that a node has met with another: the command says itself who and whom.
func whyUnreached(e *errdefs.Error) string {
	if _, why, ok := strings.Cut(e.Msg, grpcx.UnreachableText); ok {
		return why
	}
	return e.Msg
}
