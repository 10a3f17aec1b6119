package client

import (
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors of this package; what a storage answers keeps its own class and reason.
var (
	// ErrClosed: the client or sender was closed.
	ErrClosed = nodes.ErrClosed
	// ErrOutcomeUnknown: the message was sent and no answer came; it may be stored or not.
	ErrOutcomeUnknown = errdefs.New(errdefs.Unknown, "OUTCOME_UNKNOWN", "no answer came: the message may or may not be stored").
				WithRemedy("look for it in its queue before sending it again, or allow duplicates with Resend")
	// ErrUnreachable: no connection to the address, or it broke.
	ErrUnreachable = errdefs.New(errdefs.Unavailable, grpcx.ReasonUnreachable, "cannot reach the storage")
	// ErrNoMaster: none of the nodes that answered is an open master; nothing was sent.
	ErrNoMaster = nodes.ErrNoMaster
	// ErrStalled: a stream that should speak was silent for longer than Options.Timeout.
	ErrStalled = errdefs.New(errdefs.DeadlineExceeded, reasonStalled, "the storage fell silent in the middle of a stream")
)

var errNotMaster = errdefs.New(errdefs.FailedPrecondition, reasonNotMaster, "the node is not an open master")

// Reasons and metadata of the storage's errors that the client acts on.
const (
	reasonNotMaster = "NOT_MASTER"
	reasonStalled   = "STREAM_STALLED"
	metaMaster      = "master"   // gRPC address of the master, where known
	metaSequence    = "sequence" // PutStream: this message and all behind it are not stored, all before it are answered
)

// answered reports whether an error was made by a storage, and not by gRPC or the connection.
func answered(err error) bool {
	switch reason := errdefs.ReasonOf(err); reason {
	case "", grpcx.ReasonUnreachable, grpcx.ReasonMessageTooLarge, reasonStalled:
		return false
	default:
		return !strings.HasPrefix(reason, "RPC_")
	}
}

// verdict says what an error of a put means for the message.
type verdict uint8

const (
	notStored verdict = iota // certainly not, and trying again does not help
	tryAgain                 // certainly not, another try may succeed
	unknown                  // the request left, and nothing says that it was not carried out
)

// judge tells the verdict on an error of a put. left says whether the request may have left this process.
func judge(err error, left bool) verdict {
	class, reason := errdefs.ClassOf(err), errdefs.ReasonOf(err)
	switch {
	case !left && class == errdefs.Unavailable:
		return tryAgain
	case !left, reason == grpcx.ReasonMessageTooLarge: // the answer to a put is never too large
		return notStored
	case answered(err), class == errdefs.Unimplemented, class == errdefs.Unauthenticated, class == errdefs.PermissionDenied:
		return judgeAnswer(class, reason)
	default:
		return unknown
	}
}

// judgeAnswer is judge for an error that the storage itself gave.
func judgeAnswer(class errdefs.Class, reason string) verdict {
	if reason == reasonNotMaster {
		return tryAgain
	}
	switch class {
	case errdefs.Unavailable, errdefs.ResourceExhausted, errdefs.Aborted:
		return tryAgain
	case errdefs.InvalidArgument, errdefs.NotFound, errdefs.AlreadyExists, errdefs.PermissionDenied,
		errdefs.FailedPrecondition, errdefs.OutOfRange, errdefs.Unimplemented, errdefs.Unauthenticated:
		return notStored
	default: // a fatal disk, a recovered panic, a deadline: the append may have come before
		return unknown
	}
}

// hasLeft reports whether a call reached a connection: gRPC fills the peer in when it has made a stream.
func hasLeft(p *peer.Peer) bool { return p.Addr != nil }

// masterOf returns the address of the master that err names, or "".
func masterOf(err error) string {
	e := errdefs.As(err)
	if e == nil || e.Reason != reasonNotMaster || nodes.CheckAddress(e.Meta[metaMaster]) != nil {
		return ""
	}
	return e.Meta[metaMaster]
}
