package replication

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Why a master ended a session or refused one. Package link has the reasons that both sides share, acks has ErrNotOpen.
var (
	// ErrBadReport: a report that is negative, text, or beyond what was sent.
	ErrBadReport = errdefs.New(errdefs.InvalidArgument, "BAD_REPORT", "the slave reported an offset that it cannot have").
			WithRemedy("find out what is connected; if it is a slave, compare its log with this one")
	// ErrReplaced: a newer session of the same node took over.
	ErrReplaced = errdefs.New(errdefs.Aborted, "REPLACED", "a newer connection of the same node took over")
	// ErrRevoked: the grant was taken back without another reason.
	ErrRevoked = errdefs.New(errdefs.Aborted, "REVOKED", "the grant was taken back")
	// ErrTooManySlaves: all places are taken.
	ErrTooManySlaves = errdefs.New(errdefs.ResourceExhausted, "TOO_MANY_SLAVES", "all places for slaves are taken").
				WithRemedy("raise ha.maxSlaves or let the slave follow another slave")
	// ErrStopped: this node is stopping.
	ErrStopped = errdefs.New(errdefs.Unavailable, "STOPPED", "replication is stopping on this node")
	// errNoProgress is the reason that a stalled slave's status shows; the session goes on.
	errNoProgress = errdefs.New(errdefs.Unavailable, "NO_PROGRESS", "the slave is behind and has not moved for 30 s").
			WithRemedy("look at the slave's disk and its log")
)

// Why a slave ended a link.
var (
	// ErrConnect: no connection came about; the reason is in the metadata (refused, timeout, other).
	ErrConnect = errdefs.New(errdefs.Unavailable, "CONNECT_FAILED", "cannot connect to the upstream's replication port")
	// ErrFrameSize: a frame with a negative size or one above the limit.
	ErrFrameSize = errdefs.New(errdefs.InvalidArgument, "FRAME_SIZE", "the upstream sent a frame of an illegal size").
			WithRemedy("check that the address is a replication port, and haTransferBatchSize")
	// ErrFrameOffset: a frame that does not begin at this log's end.
	ErrFrameOffset = errdefs.New(errdefs.OutOfRange, "FRAME_OFFSET", "the upstream sent a frame that does not follow this log's end").
			WithRemedy("the link begins again from the true end; if it repeats, compare both logs")
	// ErrAppend: the log did not take the bytes; the cause says why.
	ErrAppend = errdefs.New(errdefs.Unavailable, "APPEND_FAILED", "the log did not take what the upstream sent")
)

// connectError tells refusal, timeout and the rest apart.
func connectError(addr string, err error) error {
	e := ErrConnect.Wrap(err).With("address", addr)
	var netErr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return e.With("how", "refused").WithRemedy("start the upstream, or correct its haAdvertise; for a RocketMQ broker, master.address (its haListenPort)")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return e.With("how", "timeout").WithRemedy("check the route and firewalls between the nodes")
	}
	return e.With("how", "other").WithRemedy("check the address")
}

// explain returns reason and remedy for a status: those of the innermost error that has them.
func explain(err error) (reason, remedy string) {
	for e := errdefs.As(err); e != nil; e = errdefs.As(e.Cause) {
		reason = e.Reason
		if e.Remedy != "" {
			remedy = e.Remedy
		}
	}
	switch {
	case reason != "" || err == nil:
		return reason, remedy
	case errors.Is(err, context.Canceled):
		return ErrStopped.Reason, ""
	}
	return "UNKNOWN", ""
}
