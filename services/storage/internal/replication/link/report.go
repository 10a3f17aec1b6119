package link

import (
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// Reporter writes the reports of one slave. What the log confirms at once Appended reports in its caller's goroutine; Run
// reports what is confirmed later, by a flush, and the heartbeats.
type Reporter struct {
	conn      net.Conn
	mark      *watermark.Mark
	heartbeat time.Duration
	limit     time.Duration
	count     *Counters
	wake      Nudge // of Run
	stop      atomic.Bool
	end       atomic.Int64 // of what is appended
	idle      atomic.Bool  // Run waits for nothing but the time

	turn  chan struct{} // holds one value while somebody writes; guards what follows. No mutex is held across the network.
	last  int64         // last report
	at    time.Time     // when it was made
	until time.Time     // deadline of the connection
	buf   [wire.ReportSize]byte
}

// NewReporter makes a reporter whose first report is first. mark is what the log confirms; a peer that takes no report for
// limit is stuck.
func NewReporter(conn net.Conn, mark *watermark.Mark, first int64, heartbeat, limit time.Duration, count *Counters) *Reporter {
	r := &Reporter{
		conn: conn, mark: mark, last: first, heartbeat: heartbeat, limit: limit, count: count,
		wake: NewNudge(), turn: make(chan struct{}, 1),
	}
	r.end.Store(first)
	return r
}

// Open writes the preamble, if there is a token, and the first report.
func (r *Reporter) Open(token *[wire.TokenSize]byte) error {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	var b []byte
	if token != nil {
		b = wire.AppendPreamble(b, *token)
	}
	b = append(b, make([]byte, wire.ReportSize)...)
	wire.PutReport(b[len(b)-wire.ReportSize:], r.last)
	return r.write(b)
}

// Appended tells of a new end of the log and reports it if it is confirmed already.
func (r *Reporter) Appended(end int64) error {
	r.end.Store(end)
	confirmed := r.mark.Load()
	if confirmed < end && r.idle.Load() {
		r.wake.Poke()
	}
	return r.report(confirmed, false)
}

// Stop ends Run; the connection must be closed too.
func (r *Reporter) Stop() {
	r.stop.Store(true)
	r.wake.Poke()
}

// Run reports until Stop, an error of the connection or the end of the mark; it never returns nil.
func (r *Reporter) Run() error {
	for !r.stop.Load() {
		want, at := r.want()
		err := r.mark.WaitUntil(r.wake, want, at.Add(r.heartbeat))
		switch {
		case err == nil:
			err = r.report(r.mark.Load(), false)
		case errors.Is(err, ErrNudged):
			err = nil
		case errors.Is(err, context.DeadlineExceeded):
			err = r.report(r.mark.Load(), true)
		default:
			err = ErrLogClosed.Wrap(err)
		}
		if err != nil {
			return err
		}
	}
	return ErrBroken
}

// want returns what Run waits for, and when the last report was made.
func (r *Reporter) want() (int64, time.Time) {
	r.idle.Store(true) // before end is read: an append that comes later sees it and pokes
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if r.last >= r.end.Load() {
		return math.MaxInt64, r.at
	}
	r.idle.Store(false)
	return r.last + 1, r.at
}

// report writes offset if it is news, or again what was reported last if always is set.
func (r *Reporter) report(offset int64, always bool) error {
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	if offset <= r.last && !always {
		return nil
	}
	r.last = max(r.last, offset)
	wire.PutReport(r.buf[:], r.last)
	return r.write(r.buf[:])
}

// write sends b. It is the caller's turn.
func (r *Reporter) write(b []byte) error {
	now := time.Now()
	if r.until.Sub(now) < r.limit/2 {
		r.until = now.Add(r.limit)
		if err := r.conn.SetWriteDeadline(r.until); err != nil {
			return Error(err)
		}
	}
	if _, err := r.conn.Write(b); err != nil {
		if IsTimeout(err) {
			return ErrStuck.With("interval", r.limit).With("offset", r.last)
		}
		return Error(err)
	}
	r.at = now
	r.count.Reports.Add(1)
	return nil
}
