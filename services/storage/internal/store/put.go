package store

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// Status says where the bytes of a message are; the numbers are those of the proto's PutStatus.
type Status int32

// Statuses, see README.md for what each one promises.
const (
	PutOK                   Status = 1
	FlushDiskTimeout        Status = 2
	FlushSlaveTimeout       Status = 3
	SlaveNotAvailable       Status = 4
	InSyncReplicasNotEnough Status = 5
	DiskFull                Status = 6
	MessageIllegal          Status = 7
	NotMaster               Status = 8
)

// Message is what a producer hands over. The byte slices are read until Begin returns.
type Message struct {
	Topic         string
	QueueID       int32 // below 0: the store chooses in turn
	Flag, SysFlag int32
	BornTimestamp int64 // ms; 0: now
	BornHost      netip.AddrPort
	Body          []byte
	Properties    []byte // encoded as message.AppendProperty does
}

// Wait says what a put waits for.
type Wait struct {
	Acks    int           // slaves; below 0: as the store is set up
	Timeout time.Duration // for slaves; 0: the store's
}

// Result says where a message stands and how far it got. Status tells whether Offset and the rest mean anything.
type Result struct {
	Status         Status
	Offset         int64 // of the record, bytes; -1 when it is not in the log
	Size           int32
	QueueID        int32
	QueueOffset    int64
	StoreTimestamp int64
	StoreHost      netip.AddrPort
	MessageID      string // UNIQ_KEY
	Acked, Flushed int    // slaves that have it, and those among them that flushed it
	Err            error  // why Status is not PutOK
}

// Pending is a message that is in the log and whose result is not known yet.
type Pending struct {
	Result

	next int64 // end of what must be flushed and acked, bytes
	acks int
	// The marks of the reign that took the message: another reign's may pass next with other bytes.
	flushed, acked *watermark.Mark // nil: not waited for
	began          time.Time       // when all that may wait before the append was behind
	deadline       time.Time       // of the wait for slaves
}

// scratch is the memory of one Begin. Where hundreds of goroutines put, that of the pool is in the CPU's cache and their stacks
// are not.
type scratch struct {
	draft   message.Draft
	rec     []byte
	props   []byte
	batch   commitlog.Batch
	records [1][]byte
}

var scratchPool = sync.Pool{New: func() any { return new(scratch) }}

// maxScratch bounds what the pool keeps for the next put, bytes.
const maxScratch = 1 << 20

func putScratch(s *scratch) {
	if cap(s.rec) <= maxScratch {
		s.draft, s.batch = message.Draft{}, commitlog.Batch{}
		scratchPool.Put(s)
	}
}

// Put appends one message and waits as w asks. An error means that nothing was written, unless ctx ended during the
// wait: then the outcome is unknown to the caller and errors.Is(err, ctx.Err()) holds.
func (s *Store) Put(ctx context.Context, m *Message, w Wait) (Result, error) {
	var p Pending
	if err := s.begin(ctx, m, w, &p); err != nil {
		return Result{}, err
	}
	err := s.finish(ctx, &p)
	return p.Result, err
}

// Begin appends one message without waiting. When the message is refused by a status (Offset is -1) Finish returns that
// at once.
func (s *Store) Begin(ctx context.Context, m *Message, w Wait) (Pending, error) {
	var p Pending
	if err := s.begin(ctx, m, w, &p); err != nil {
		return Pending{}, err
	}
	return p, nil
}

func (s *Store) begin(ctx context.Context, m *Message, w Wait, p *Pending) error {
	sc := scratchPool.Get().(*scratch) //nolint:errcheck,forcetypeassert // the pool holds nothing else
	defer putScratch(sc)
	if err := s.draft(ctx, m, sc, p); err != nil {
		return err
	}
	sc.rec = message.Append(sc.rec[:0], &sc.draft, s.o.AppendPropCRC)
	sc.records[0] = sc.rec
	sc.batch.Records = sc.records[:]
	if err := s.plan(ctx, p, w, m.Properties); err != nil {
		return err
	}
	return s.append(ctx, p, &sc.batch, m.Topic)
}

// checkWait checks what a caller asks to wait for.
func (s *Store) checkWait(w Wait) error {
	if w.Acks > s.o.MaxAcks {
		return errdefs.Invalid("acks", "%d is more than the %d slaves that a put can wait for", w.Acks, s.o.MaxAcks)
	}
	if w.Timeout < 0 {
		return errdefs.Invalid("timeout", "%v is negative", w.Timeout)
	}
	return nil
}

// draft checks m and makes it sc.draft, with its properties completed in sc.
func (s *Store) draft(ctx context.Context, m *Message, sc *scratch, p *Pending) error {
	if err := message.CheckTopic(m.Topic); err != nil {
		return err
	}
	if err := refuseUnbuilt(m); err != nil {
		return err
	}
	n, err := s.topics.WriteQueues(ctx, m.Topic)
	if err != nil {
		return err
	}
	if p.began.IsZero() {
		p.began = s.o.Now()
	}
	d := &sc.draft
	*d = message.Draft{
		Topic: m.Topic, QueueID: m.QueueID, Flag: m.Flag, SysFlag: m.SysFlag, BornTimestamp: m.BornTimestamp,
		BornHost: m.BornHost, StoreHost: s.o.StoreHost, Body: m.Body, Properties: m.Properties,
	}
	switch {
	case m.QueueID < 0:
		d.QueueID = int32(s.turn.Add(1) % uint32(n)) //nolint:gosec // n is a queue count, above 0
	case int(m.QueueID) >= n:
		return errdefs.Invalid("queue_id", "%d is not a queue of topic %s, which has %d", m.QueueID, m.Topic, n)
	}
	if d.BornTimestamp == 0 {
		d.BornTimestamp = p.began.UnixMilli()
	}
	if !d.BornHost.IsValid() {
		d.BornHost = s.o.StoreHost
	}
	if id, ok := message.FindProperty(m.Properties, message.PropertyUniqueKey); ok {
		p.MessageID = string(id)
	} else {
		d.Properties = s.addID(m.Properties, sc, p)
	}
	if err := s.o.Limits.Validate(d); err != nil {
		return err
	}
	p.QueueID, p.StoreHost = d.QueueID, s.o.StoreHost
	return nil
}

func (s *Store) addID(props []byte, sc *scratch, p *Pending) []byte {
	var id [idSize]byte
	p.MessageID = string(s.ids.appendID(id[:0], p.began))
	var pair [64]byte
	sc.props = message.AppendProperties(sc.props[:0], props)
	sc.props = message.AppendProperties(sc.props, message.AppendProperty(pair[:0], message.PropertyUniqueKey, p.MessageID))
	return sc.props
}

// unbuilt are the properties that ask for delayed, timed or transactional delivery.
var unbuilt = []string{
	message.PropertyDelay, message.PropertyTimerDelaySec, message.PropertyTimerDelayMs,
	message.PropertyTimerDeliverMs, message.PropertyTransactionMessage,
}

func refuseUnbuilt(m *Message) error {
	if message.IsInternalTopic(m.Topic) {
		return errdefs.Invalid("topic", "%s belongs to the store itself", m.Topic)
	}
	if message.Transaction(m.SysFlag) != message.TransactionNone {
		return ErrNotBuilt.WithField("sys_flag").With("sys_flag", m.SysFlag)
	}
	if len(m.Properties) == 0 {
		return nil
	}
	for _, name := range unbuilt {
		if _, ok := message.FindProperty(m.Properties, name); ok {
			return ErrNotBuilt.WithField("properties").With("property", name).
				WithRemedy("send it without %s", name)
		}
	}
	return nil
}

var valueFalse = []byte("false")

// plan decides what the put will wait for and until when.
func (s *Store) plan(ctx context.Context, p *Pending, w Wait, props []byte) error {
	if err := s.checkWait(w); err != nil {
		return err
	}
	p.Offset = -1
	if s.o.SyncFlush {
		p.flushed = s.log.Flushed()
	}
	p.acks = w.Acks
	if w.Acks < 0 {
		p.acks = 0
		if s.o.SyncMaster {
			p.acks = s.o.Required
		}
	}
	if v, ok := message.FindProperty(props, message.PropertyWait); ok && bytes.Equal(v, valueFalse) {
		p.flushed, p.acks = nil, 0
	}
	timeout := s.o.SlaveTimeout
	if w.Timeout > 0 {
		timeout = w.Timeout
	}
	p.deadline = p.began.Add(timeout)
	if d, ok := ctx.Deadline(); ok {
		if d = d.Add(-margin(d.Sub(p.began))); d.Before(p.deadline) {
			p.deadline = d
		}
	}
	return nil
}

// margin is the part of a caller's remaining time that is kept for the way of the answer.
func margin(left time.Duration) time.Duration {
	return min(left/10, 100*time.Millisecond)
}

// refused fills in the status of a put that is not even tried.
func (s *Store) refused(p *Pending) bool {
	if !s.o.SyncMaster || !s.o.RefuseWithoutReplicas {
		return false
	}
	if n := s.replicas.InSync(); n < s.o.Required {
		p.Status = InSyncReplicasNotEnough
		p.Err = errTooFew.With("in_sync", n).With("required", s.o.Required)
		return true
	}
	return false
}

var (
	errTooFew = errdefs.New(errdefs.FailedPrecondition, "IN_SYNC_REPLICAS_NOT_ENOUGH", "too few slaves are in sync").
			WithRemedy("look at the slaves in Status")
	errSlaveTimeout = errdefs.New(errdefs.DeadlineExceeded, "FLUSH_SLAVE_TIMEOUT",
		"fewer slaves than asked for confirmed in time; the message is in this node's log")
	errFlushTimeout = errdefs.New(errdefs.DeadlineExceeded, "FLUSH_DISK_TIMEOUT",
		"the flush was not confirmed in time; the message is in this node's log")
)

// append appends the batch to the queue of p and fills in p; a full disk is a status.
func (s *Store) append(ctx context.Context, p *Pending, b *commitlog.Batch, topic string) error {
	a, err := s.appendInReign(p, b, topic)
	if err != nil {
		return s.notAppended(p, err)
	}
	if p.Err != nil {
		return nil //nolint:nilerr // refused: the status says it
	}
	p.Status, p.Offset, p.QueueOffset, p.StoreTimestamp = PutOK, a.Offset, a.QueueOffset, a.StoreTimestamp
	p.Size, p.next = int32(len(b.Records[0])), a.Next //nolint:gosec // bounded by Limits
	s.metrics.appended(len(b.Records), a.Next-a.Offset)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("appended", trace.WithAttributes(attribute.Int64("offset", a.Offset)))
	}
	return nil
}

// appendInReign appends while the reign lasts and takes its marks before, so that a later reign cannot answer for it.
func (s *Store) appendInReign(p *Pending, b *commitlog.Batch, topic string) (commitlog.Appended, error) {
	if err := s.guard.Enter(); err != nil {
		return commitlog.Appended{}, err
	}
	defer s.guard.Leave()
	r := s.reign.Load()
	switch {
	case s.stopped.Load():
		return commitlog.Appended{}, ErrStopping
	case r == nil:
		return commitlog.Appended{}, ErrNoReign
	case s.refused(p):
		return commitlog.Appended{}, nil
	}
	if p.flushed != nil {
		p.flushed = s.log.Flushed()
	}
	if p.acks > 0 {
		p.acked = s.replicas.Acked(p.acks)
	}
	b.Cursor, b.Now = s.cursor(r, topic, p.QueueID), p.began
	return s.log.Append(b)
}

func (s *Store) notAppended(p *Pending, err error) error {
	switch {
	case errors.Is(err, vfs.ErrNoSpace):
		p.Status, p.Err = DiskFull, err
	case errors.Is(err, commitlog.ErrTooLarge):
		p.Status, p.Err = MessageIllegal, err
	default:
		return err
	}
	return nil
}

// Finish waits for what Begin's message asks for. The error is nil unless ctx ended first or the log failed for good
// (class DataLoss): whoever sees another class may take the message for not stored.
func (s *Store) Finish(ctx context.Context, p *Pending) (Result, error) {
	err := s.finish(ctx, p)
	return p.Result, err
}

func (s *Store) finish(ctx context.Context, p *Pending) error {
	if p.Offset < 0 {
		s.metrics.done(ctx, p.Status, 0)
		return nil
	}
	if p.flushed != nil {
		if err := s.waitFlushed(ctx, p); err != nil {
			return err
		}
	}
	if p.acked != nil && p.Status == PutOK {
		if err := s.waitAcked(ctx, p); err != nil {
			return err
		}
	}
	if p.acked != nil {
		p.Acked, p.Flushed = s.replicas.CountAt(p.next)
	}
	s.metrics.done(ctx, p.Status, s.since(p.began))
	return nil
}

func (s *Store) waitFlushed(ctx context.Context, p *Pending) error {
	err := p.flushed.WaitUntil(ctx, p.next, p.began.Add(s.o.FlushTimeout))
	switch {
	case err == nil:
		event(ctx, "flushed")
	case ctx.Err() != nil:
		return ctx.Err()
	case errdefs.ClassOf(err) == errdefs.DataLoss: // the log has failed
		return err
	default: // the deadline, a cut, or the end of the process
		p.Status, p.Err = FlushDiskTimeout, errFlushTimeout.With("offset", p.Offset)
	}
	return nil
}

func (s *Store) waitAcked(ctx context.Context, p *Pending) error {
	if p.acked.Load() >= p.next {
		event(ctx, "acked")
		return nil
	}
	if n := s.replicas.InSync(); n < p.acks {
		p.Status = SlaveNotAvailable
		p.Err = errTooFew.With("in_sync", n).With("required", p.acks)
		return nil
	}
	if trace.SpanFromContext(ctx).IsRecording() {
		return s.waitTraced(ctx, p)
	}
	return s.judge(ctx, p, p.acked.WaitUntil(ctx, p.next, p.deadline))
}

// waitTraced is the wait for slaves with a span of its own.
func (s *Store) waitTraced(ctx context.Context, p *Pending) error {
	ctx, span := s.metrics.tracer.Start(ctx, "wait for slaves", trace.WithAttributes(attribute.Int("acks", p.acks)))
	defer span.End()
	err := p.acked.WaitUntil(ctx, p.next, p.deadline)
	if err == nil {
		span.AddEvent("acked")
	}
	return s.judge(ctx, p, err)
}

// judge makes a status of how the wait for slaves ended.
func (s *Store) judge(ctx context.Context, p *Pending, err error) error {
	switch {
	case err == nil:
	case ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		return ctx.Err()
	default: // the deadline, or the reign has ended: the message is here, who else has it is not known
		p.Status = FlushSlaveTimeout
		p.Err = errSlaveTimeout.With("offset", p.Offset).With("required", p.acks)
	}
	return nil
}

func event(ctx context.Context, name string) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(name)
	}
}
