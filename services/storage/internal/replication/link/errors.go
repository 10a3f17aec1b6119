package link

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Why a link ended, on either side.
var (
	// ErrPeerClosed: the peer closed the connection.
	ErrPeerClosed = errdefs.New(errdefs.Unavailable, "LINK_CLOSED", "the peer closed the connection").
			WithRemedy("start the peer where it is down; else its log has the reason")
	// ErrBroken: the connection broke.
	ErrBroken = errdefs.New(errdefs.Unavailable, "LINK_BROKEN", "the connection broke")
	// ErrSilent: nothing came for the housekeeping interval.
	ErrSilent = errdefs.New(errdefs.Unavailable, "PEER_SILENT", "nothing came from the peer for the housekeeping interval").
			WithRemedy("look at the peer and the network between")
	// ErrStuck: the peer took no byte for the housekeeping interval.
	ErrStuck = errdefs.New(errdefs.Unavailable, "PEER_STUCK", "the peer took no byte for the housekeeping interval").
			WithRemedy("look at the peer's disk and load")
	// ErrHistoryGone: the slave's place in the log is not there (any more).
	ErrHistoryGone = errdefs.New(errdefs.OutOfRange, "HISTORY_GONE", "the log has no bytes at the slave's offset").
			WithRemedy("a Tandem slave starts over by itself; empty the store folder of a RocketMQ slave")
	// ErrLogClosed: the log behind the link was cut, closed or failed.
	ErrLogClosed = errdefs.New(errdefs.Aborted, "LOG_CLOSED", "the log behind the link was cut or closed")
)

// Error turns an error of a connection into one of this package; what has a reason already stays as it is.
func Error(err error) error {
	switch {
	case errdefs.As(err) != nil:
		return err
	case errors.Is(err, io.EOF):
		return ErrPeerClosed
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return ErrPeerClosed.Wrap(err)
	}
	return ErrBroken.Wrap(err)
}

// IsTimeout says whether a deadline of the connection has passed.
func IsTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
