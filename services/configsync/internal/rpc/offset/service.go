package offset

import (
	"context"
	"fmt"
	"iter"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Role says what this node may do.
type Role interface {
	// Enter returns nil when the node takes changes; until Leave its reign does not end.
	Enter() error
	Leave()
	// Reign returns an error, that of Enter, unless the node leads.
	Reign() (int64, <-chan struct{}, error)
	// Serves returns nil when what the node has may be shown.
	Serves() error
}

// Consumers are the offsets of consumer groups.
type Consumers interface {
	// CommitOffsets takes commits, none where one is of before a reset; with wait they are saved when it returns, else within seconds.
	CommitOffsets(ctx context.Context, cs []table.Commit, wait bool) (registry.CommitResult, error)
	// Offset, Offsets and Standing show gathered commits too; Standing in the order of topic@group, from a key on.
	Offset(topic, group string, queue int32) (entry.QueueOffset, bool)
	Offsets(topic, group string) []entry.QueueOffset
	Standing(from string) iter.Seq2[string, *entry.Offsets]
	// ResetOffsets has saved all or none.
	ResetOffsets(ctx context.Context, rs []table.Reset) (uint32, error)
}

// Delays are the offsets of delay levels.
type Delays interface {
	Snapshot(k entry.Kind) *table.Table
	// CommitDelays and ResetDelays have saved all or none.
	CommitDelays(ctx context.Context, offsets map[int32]int64) (lower int, err error)
	ResetDelays(ctx context.Context, offsets map[int32]int64) (uint32, error)
}

// Queues are those of the node's storage.
type Queues interface {
	// Allow refuses an offset behind the queue's end.
	Allow(ctx context.Context, topic string, queue int32, offset int64) error
	List(ctx context.Context, topic string, below int64) (storage.Ends, error)
	Search(ctx context.Context, topic string, queue int32, storeTime int64) (int64, error)
}

// Service implements OffsetService.
type Service struct {
	configsyncv1.UnimplementedOffsetServiceServer

	tables Consumers
	delays Delays
	role   Role
	queues Queues // nil: none
}

// New makes the service; queues may be nil: then no offset is beyond an end, and Reset takes only offsets.
func New(t Consumers, d Delays, r Role, q Queues) *Service {
	return &Service{tables: t, delays: d, role: r, queues: q}
}

// maxBatch bounds the offsets of a request.
const maxBatch = 1024

// errWasReset refuses the commit of a consumer that has not heard of a reset.
var errWasReset = errdefs.New(errdefs.FailedPrecondition, "OFFSET_WAS_RESET", "the offset was reset since").
	WithRemedy("query it and go on from there")

// Commit implements OffsetService.
func (s *Service) Commit(ctx context.Context, req *configsyncv1.CommitRequest) (*configsyncv1.CommitResponse, error) {
	offsets := [...]*configsyncv1.ConsumerOffset{req.GetOffset()}
	cs, err := s.commits(ctx, offsets[:], "offset")
	if err != nil {
		return nil, err
	}
	held, err := s.commit(ctx, cs, req.GetDurable(), "offset")
	if err != nil {
		return nil, err
	}
	return &configsyncv1.CommitResponse{Offset: held[0]}, nil
}

// CommitBatch implements OffsetService.
func (s *Service) CommitBatch(ctx context.Context, req *configsyncv1.CommitBatchRequest) (*configsyncv1.CommitBatchResponse, error) {
	if n := len(req.GetOffsets()); n == 0 || n > maxBatch {
		return nil, errdefs.Invalid("offsets", "%d offsets, not 1 to %d", n, maxBatch)
	}
	cs, err := s.commits(ctx, req.GetOffsets(), "offsets")
	if err != nil {
		return nil, err
	}
	held, err := s.commit(ctx, cs, req.GetDurable(), "offsets")
	if err != nil {
		return nil, err
	}
	return &configsyncv1.CommitBatchResponse{Offsets: held}, nil
}

// commits checks offsets of a request; field names them.
func (s *Service) commits(ctx context.Context, offsets []*configsyncv1.ConsumerOffset, field string) ([]table.Commit, error) {
	if _, _, err := s.role.Reign(); err != nil {
		return nil, err // before anybody asks the storage
	}
	cs := make([]table.Commit, len(offsets))
	for i, o := range offsets {
		var err error
		if cs[i], err = s.check(ctx, o); err != nil {
			return nil, at(field, i, err)
		}
	}
	return cs, nil
}

// at says in which field, and at which place of a list, an error is.
func at(field string, i int, err error) error {
	if field == "offsets" {
		field = fmt.Sprintf("offsets[%d]", i)
	}
	e := errdefs.As(err)
	if e == nil || e.Field == "" {
		return err
	}
	return e.WithField(field + "." + e.Field)
}

// check checks one offset.
func (s *Service) check(ctx context.Context, o *configsyncv1.ConsumerOffset) (table.Commit, error) {
	c := table.Commit{Topic: o.GetTopic(), Group: o.GetGroup(), Queue: o.GetQueueId(), Offset: o.GetOffset()}
	if o != nil && o.ResetEpoch != nil {
		c.Guard, c.Epoch = true, o.GetResetEpoch()
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	if s.queues == nil {
		return c, nil
	}
	return c, s.queues.Allow(ctx, c.Topic, c.Queue, c.Offset)
}

// commit takes checked commits and returns the offsets that hold then.
func (s *Service) commit(ctx context.Context, cs []table.Commit, wait bool, field string) ([]int64, error) {
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	if err := s.noneStale(cs, field); err != nil {
		return nil, err
	}
	result, err := s.tables.CommitOffsets(ctx, cs, wait)
	if err == nil && result.Staled > 0 { // a reset came in between
		err = s.noneStale(cs, field)
	}
	if err != nil {
		return nil, err
	}
	held := make([]int64, len(cs))
	for i, c := range cs {
		q, _ := s.tables.Offset(c.Topic, c.Group, c.Queue)
		held[i] = q.Offset
	}
	return held, nil
}

// noneStale refuses commits of which one is of before a reset.
func (s *Service) noneStale(cs []table.Commit, field string) error {
	for i, c := range cs {
		if err := s.stale(c); err != nil {
			return at(field, i, err)
		}
	}
	return nil
}

// stale refuses a commit of before a reset.
func (s *Service) stale(c table.Commit) error {
	if !c.Guard {
		return nil
	}
	if q, _ := s.tables.Offset(c.Topic, c.Group, c.Queue); q.Epoch > c.Epoch {
		return errWasReset.WithField("reset_epoch").With("reset_epoch", q.Epoch).With("offset", q.Offset)
	}
	return nil
}

// Query implements OffsetService.
func (s *Service) Query(_ context.Context, req *configsyncv1.QueryRequest) (*configsyncv1.QueryResponse, error) {
	if err := checkNames(req.GetGroup(), req.GetTopic(), req.QueueId); err != nil {
		return nil, err
	}
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	resp := &configsyncv1.QueryResponse{}
	for _, q := range s.tables.Offsets(req.GetTopic(), req.GetGroup()) {
		if q.Offset != entry.NoOffset && (req.QueueId == nil || q.Queue == req.GetQueueId()) {
			resp.Offsets = append(resp.Offsets, &configsyncv1.QueryOffset{QueueId: q.Queue, Offset: q.Offset, ResetEpoch: q.Epoch})
		}
	}
	return resp, nil
}

func checkNames(group, topic string, queue *int32) error {
	if err := entry.ValidateGroupName(group); err != nil {
		return err
	}
	if err := entry.ValidateTopicName(topic); err != nil {
		return err
	}
	if queue != nil && *queue < 0 {
		return errdefs.Invalid("queue_id", "%d is negative", *queue)
	}
	return nil
}

// CommitDelay implements OffsetService.
func (s *Service) CommitDelay(ctx context.Context, req *configsyncv1.CommitDelayRequest) (*configsyncv1.CommitDelayResponse, error) {
	if _, _, err := s.role.Reign(); err != nil {
		return nil, err
	}
	if n := len(req.GetOffsets()); n == 0 || n > maxBatch {
		return nil, errdefs.Invalid("offsets", "%d offsets, not 1 to %d", n, maxBatch)
	}
	offsets := map[int32]int64{}
	for i, o := range req.GetOffsets() {
		if err := s.checkDelay(ctx, o.GetLevel(), o.GetOffset()); err != nil {
			return nil, at("offsets", i, err)
		}
		if _, twice := offsets[o.GetLevel()]; twice {
			return nil, at("offsets", i, errdefs.Invalid("level", "%d stands twice", o.GetLevel()))
		}
		offsets[o.GetLevel()] = o.GetOffset()
	}
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	if _, err := s.delays.CommitDelays(ctx, offsets); err != nil {
		return nil, err
	}
	resp := &configsyncv1.CommitDelayResponse{}
	t := s.delays.Snapshot(entry.DelayOffsets)
	for _, o := range req.GetOffsets() {
		d, _ := t.Delay(o.GetLevel())
		resp.Offsets = append(resp.Offsets, d.Offset)
	}
	return resp, nil
}

func (s *Service) checkDelay(ctx context.Context, level int32, offset int64) error {
	switch {
	case level < 1 || level > entry.MaxDelayLevel:
		return errdefs.Invalid("level", "%d is not within 1 and %d", level, entry.MaxDelayLevel)
	case offset < 0:
		return errdefs.Invalid("offset", "%d is negative", offset)
	case s.queues == nil:
		return nil
	}
	return s.queues.Allow(ctx, table.ScheduleTopic, level-1, offset)
}

// QueryDelay implements OffsetService.
func (s *Service) QueryDelay(context.Context, *configsyncv1.QueryDelayRequest) (*configsyncv1.QueryDelayResponse, error) {
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	resp := &configsyncv1.QueryDelayResponse{}
	for e := range s.delays.Snapshot(entry.DelayOffsets).Ascend("") {
		level, _ := entry.ParseDelayKey(e.Key)
		if d, ok := e.Value.(*entry.Delay); ok && d.Offset != entry.NoOffset {
			resp.Offsets = append(resp.Offsets, &configsyncv1.DelayOffset{Level: level, Offset: d.Offset, ResetEpoch: d.Epoch})
		}
	}
	sortDelays(resp.GetOffsets())
	return resp, nil
}

// ResetDelay implements OffsetService.
func (s *Service) ResetDelay(ctx context.Context, req *configsyncv1.ResetDelayRequest) (*configsyncv1.ResetDelayResponse, error) {
	if _, _, err := s.role.Reign(); err != nil {
		return nil, err
	}
	if err := s.checkDelay(ctx, req.GetLevel(), req.GetOffset()); err != nil {
		return nil, err
	}
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	resp := &configsyncv1.ResetDelayResponse{OldOffset: entry.NoOffset}
	if d, ok := s.delays.Snapshot(entry.DelayOffsets).Delay(req.GetLevel()); ok {
		resp.OldOffset = d.Offset
	}
	_, err := s.delays.ResetDelays(ctx, map[int32]int64{req.GetLevel(): req.GetOffset()})
	return resp, err
}
