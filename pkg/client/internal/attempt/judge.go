package attempt

import (
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Reasons and metadata of the errors that a put acts on.
const (
	ReasonNotMaster = "NOT_MASTER"
	ReasonStalled   = "STREAM_STALLED"
	metaMaster      = "master" // gRPC address of the master, where known
)

// Answered reports whether an error was made by a storage, and not by gRPC or the connection.
func Answered(err error) bool {
	switch reason := errdefs.ReasonOf(err); reason {
	case "", grpcx.ReasonUnreachable, grpcx.ReasonMessageTooLarge, ReasonStalled:
		return false
	default:
		return !strings.HasPrefix(reason, "RPC_")
	}
}

// Refused reports whether an error is final though no storage made it: whoever is asked again says the same.
func Refused(err error) bool {
	switch errdefs.ClassOf(err) {
	case errdefs.Unimplemented, errdefs.Unauthenticated, errdefs.PermissionDenied:
		return true
	default:
		return errdefs.ReasonOf(err) == grpcx.ReasonMessageTooLarge
	}
}

// Verdict says what an error of a put means for the message.
type Verdict uint8

// Verdicts.
const (
	NotStored Verdict = iota // certainly not, and trying again does not help
	TryAgain                 // certainly not, another try may succeed
	Unknown                  // the request left, and nothing says that it was not carried out
)

// Judge tells the verdict on an error of a put. left says whether the request may have left this process.
func Judge(err error, left bool) Verdict {
	class, reason := errdefs.ClassOf(err), errdefs.ReasonOf(err)
	switch {
	case !left && class == errdefs.Unavailable:
		return TryAgain
	case !left, reason == grpcx.ReasonMessageTooLarge: // the answer to a put is never too large
		return NotStored
	case Answered(err), class == errdefs.Unimplemented, class == errdefs.Unauthenticated, class == errdefs.PermissionDenied:
		return judgeAnswer(class, reason)
	default:
		return Unknown
	}
}

// judgeAnswer is Judge for an error that the storage itself gave.
func judgeAnswer(class errdefs.Class, reason string) Verdict {
	if reason == ReasonNotMaster {
		return TryAgain
	}
	switch class {
	case errdefs.Unavailable, errdefs.ResourceExhausted, errdefs.Aborted:
		return TryAgain
	case errdefs.InvalidArgument, errdefs.NotFound, errdefs.AlreadyExists, errdefs.PermissionDenied,
		errdefs.FailedPrecondition, errdefs.OutOfRange, errdefs.Unimplemented, errdefs.Unauthenticated:
		return NotStored
	default: // a fatal disk, a recovered panic, a deadline: the append may have come before
		return Unknown
	}
}

// HasLeft reports whether a call reached a connection: gRPC fills the peer in when it has made a stream.
func HasLeft(p *peer.Peer) bool { return p.Addr != nil }

// masterOf returns the address of the master that err names, or "".
func masterOf(err error) string {
	e := errdefs.As(err)
	if e == nil || e.Reason != ReasonNotMaster || nodes.CheckAddress(e.Meta[metaMaster]) != nil {
		return ""
	}
	return e.Meta[metaMaster]
}
