package client

import (
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
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
	// ErrTooLarge: a message is larger than Options.MaxMessage lets in.
	ErrTooLarge = errdefs.New(errdefs.ResourceExhausted, grpcx.ReasonMessageTooLarge, "the message is larger than this client takes").
			WithRemedy("raise client.Options.MaxMessage (--max-message of tandemctl), or go on behind the message")
	// ErrStalled: a stream that should speak was silent for longer than Options.Timeout.
	ErrStalled = errdefs.New(errdefs.DeadlineExceeded, attempt.ReasonStalled, "the storage fell silent in the middle of a stream")
)

// errTooLarge has the words of gRPC, which says so when it is too late to tell which message of a stream it is.
var errTooLarge = errdefs.New(errdefs.ResourceExhausted, grpcx.ReasonMessageTooLarge, "trying to send message larger than max").
	WithRemedy("send a smaller message, or raise MaxMessage and the storage's maxMessageSize")

var errNotMaster = errdefs.New(errdefs.FailedPrecondition, attempt.ReasonNotMaster, "the node is not an open master")

// metaSequence is the key of an error of PutStream: this message and all behind it are not stored, all before it are answered.
const metaSequence = "sequence"
