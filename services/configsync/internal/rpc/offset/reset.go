package offset

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc/paging"
	"github.com/tandemlog/tandem/services/configsync/internal/storage"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Errors of resets.
var (
	errNoStorage = errdefs.New(errdefs.FailedPrecondition, "NO_STORAGE", "only a storage knows that").WithField("to").
			WithRemedy("set storage.address, or reset to an offset")
	errNothing = errdefs.New(errdefs.NotFound, "NO_OFFSETS", "the group has no offset in the topic, and the storage no queue of it").
			WithField("topic").WithRemedy("name the queue with queue_id")
)

// Reset implements OffsetService.
func (s *Service) Reset(ctx context.Context, req *configsyncv1.ResetRequest) (*configsyncv1.ResetResponse, error) {
	if err := checkNames(req.GetGroup(), req.GetTopic(), req.QueueId); err != nil {
		return nil, err
	}
	if _, _, err := s.role.Reign(); err != nil {
		return nil, err
	}
	bounds, err := s.bounds(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	resp := &configsyncv1.ResetResponse{}
	var rs []table.Reset
	for _, q := range s.resetQueues(req, bounds) {
		to, err := s.target(ctx, req, q, bounds)
		if err != nil {
			return nil, err
		}
		old := int64(entry.NoOffset)
		if have, ok := s.tables.Offset(req.GetTopic(), req.GetGroup(), q); ok {
			old = have.Offset
		}
		resp.Offsets = append(resp.Offsets, &configsyncv1.ResetOffset{QueueId: q, OldOffset: old, NewOffset: to})
		rs = append(rs, table.Reset{Topic: req.GetTopic(), Group: req.GetGroup(), Queue: q, Offset: to})
	}
	switch {
	case len(rs) == 0:
		return nil, errNothing.With("group", req.GetGroup()).With("topic", req.GetTopic())
	case req.GetDryRun():
		return resp, nil
	}
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	_, err = s.tables.ResetOffsets(ctx, rs)
	return resp, err
}

// bounds are those of the topic's queues; nil where no storage knows them.
func (s *Service) bounds(ctx context.Context, topic string) (map[int32]storage.Bounds, error) {
	if s.queues == nil {
		return nil, nil //nolint:nilnil // nil: nobody knows
	}
	ends, err := s.queues.List(ctx, topic, 0)
	if err != nil {
		return nil, err
	}
	if ends[topic] == nil {
		return map[int32]storage.Bounds{}, nil
	}
	return ends[topic], nil
}

// resetQueues are the queues that a request means.
func (s *Service) resetQueues(req *configsyncv1.ResetRequest, bounds map[int32]storage.Bounds) []int32 {
	if req.QueueId != nil {
		return []int32{req.GetQueueId()}
	}
	queues := map[int32]bool{}
	for q := range bounds {
		queues[q] = true
	}
	for _, q := range s.tables.Offsets(req.GetTopic(), req.GetGroup()) {
		queues[q.Queue] = true
	}
	return slices.Sorted(maps.Keys(queues))
}

// target is the offset that a queue is to get.
func (s *Service) target(ctx context.Context, req *configsyncv1.ResetRequest, queue int32, bounds map[int32]storage.Bounds) (int64, error) {
	b := bounds[queue]
	switch to := req.GetTo().(type) {
	case *configsyncv1.ResetRequest_Offset:
		return to.Offset, inside(to.Offset, queue, b, bounds != nil)
	case *configsyncv1.ResetRequest_Time:
		if err := to.Time.CheckValid(); err != nil {
			return 0, errdefs.Invalid("time", "%v", err)
		}
		if bounds == nil {
			return 0, errNoStorage
		}
		if b == (storage.Bounds{}) {
			return 0, nil // no such queue: it will begin at 0
		}
		return s.queues.Search(ctx, req.GetTopic(), queue, max(to.Time.AsTime().UnixMilli(), 0))
	case *configsyncv1.ResetRequest_Earliest:
		if bounds == nil {
			return 0, errNoStorage
		}
		return b.Min, onlyTrue("earliest", to.Earliest)
	case *configsyncv1.ResetRequest_Latest:
		if bounds == nil {
			return 0, errNoStorage
		}
		return b.Max, onlyTrue("latest", to.Latest)
	}
	return 0, errdefs.Invalid("to", "is missing").WithRemedy("name an offset, a time, earliest or latest")
}

func inside(offset int64, queue int32, b storage.Bounds, known bool) error {
	switch {
	case offset < 0:
		return errdefs.Invalid("offset", "%d is negative", offset)
	case known && offset > b.Max:
		return storage.ErrBeyondEnd.With("queue_id", queue).With("offset", offset).With("end", b.Max)
	}
	return nil
}

func onlyTrue(field string, value bool) error {
	if !value {
		return errdefs.Invalid(field, "false says nothing").WithRemedy("set it to true, or name something else")
	}
	return nil
}

// ListLag implements OffsetService.
func (s *Service) ListLag(ctx context.Context, req *configsyncv1.ListLagRequest) (*configsyncv1.ListLagResponse, error) {
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	limit, err := paging.Size(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	key, queue, err := parseLagToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := s.standing(req, key, queue, limit)
	return resp, s.fillLag(ctx, resp.GetLags())
}

// standing lists where groups stand, behind the queue of a key.
func (s *Service) standing(req *configsyncv1.ListLagRequest, key string, queue int32, limit int) *configsyncv1.ListLagResponse {
	resp := &configsyncv1.ListLagResponse{}
	bytes := 0
	for at, queues := range s.tables.Standing(max(key, req.GetTopicPrefix())) {
		topic, group, _ := entry.SplitOffsetKey(at)
		if !strings.HasPrefix(topic, req.GetTopicPrefix()) {
			break
		}
		if req.GetGroup() != "" && group != req.GetGroup() {
			continue
		}
		for q := range queues.All() {
			if q.Offset == entry.NoOffset || at == key && q.Queue <= queue {
				continue
			}
			if n := len(resp.GetLags()); n == limit || bytes >= paging.MaxBytes {
				last := resp.GetLags()[n-1]
				resp.NextPageToken = paging.Token(strconv.Itoa(int(last.GetQueueId())) + " " + entry.OffsetKey(last.GetTopic(), last.GetGroup()))
				return resp
			}
			bytes += len(at) + lagSize
			resp.Lags = append(resp.Lags, &configsyncv1.Lag{
				Group: group, Topic: topic, QueueId: q.Queue, Offset: q.Offset, MinOffset: -1, MaxOffset: -1, Lag: -1,
			})
		}
	}
	return resp
}

// lagSize is what a Lag takes beside its names, at most.
const lagSize = 64

func parseLagToken(token string) (key string, queue int32, err error) {
	raw, err := paging.Parse(token)
	if err != nil || raw == "" {
		return "", -1, err
	}
	number, key, ok := strings.Cut(raw, " ")
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || !ok {
		return "", 0, errdefs.Invalid("page_token", "is not a next_page_token of this list")
	}
	return key, int32(n), nil
}

// manyTopics is from where on all queues are asked for at once.
const manyTopics = 16

// fillLag says how far the queues go.
func (s *Service) fillLag(ctx context.Context, lags []*configsyncv1.Lag) error {
	if s.queues == nil || len(lags) == 0 {
		return nil
	}
	topics := map[string]bool{}
	for _, l := range lags {
		topics[l.GetTopic()] = true
	}
	if len(topics) > manyTopics {
		topics = map[string]bool{"": true}
	}
	ends := storage.Ends{}
	for topic := range topics {
		some, err := s.queues.List(ctx, topic, 0)
		if err != nil {
			return err
		}
		maps.Copy(ends, some)
	}
	for _, l := range lags {
		if b, ok := ends[l.GetTopic()][l.GetQueueId()]; ok {
			l.MinOffset, l.MaxOffset, l.Lag = b.Min, b.Max, max(b.Max-max(l.GetOffset(), b.Min), 0)
		}
	}
	return nil
}

func sortDelays(ds []*configsyncv1.DelayOffset) {
	slices.SortFunc(ds, func(a, b *configsyncv1.DelayOffset) int { return cmp.Compare(a.GetLevel(), b.GetLevel()) })
}
