package configtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Commit implements OffsetService.
func (n *Node) Commit(_ context.Context, req *configsyncv1.CommitRequest) (*configsyncv1.CommitResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.CommitResponse, error) {
		held, err := g.commit(req.GetOffset())
		return &configsyncv1.CommitResponse{Offset: held}, err
	})
}

// CommitBatch implements OffsetService: all or none.
func (n *Node) CommitBatch(_ context.Context, req *configsyncv1.CommitBatchRequest) (*configsyncv1.CommitBatchResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.CommitBatchResponse, error) {
		for i, o := range req.GetOffsets() {
			if err := g.refuses(o); err != nil {
				return nil, errdefs.As(err).WithField(fmt.Sprintf("offsets[%d]", i))
			}
		}
		resp := &configsyncv1.CommitBatchResponse{}
		for _, o := range req.GetOffsets() {
			held, err := g.commit(o)
			if err != nil {
				return nil, err
			}
			resp.Offsets = append(resp.Offsets, held)
		}
		return resp, nil
	})
}

func keyOf(o *configsyncv1.ConsumerOffset) Key {
	return Key{Group: o.GetGroup(), Topic: o.GetTopic(), Queue: o.GetQueueId()}
}

// refuses says why an offset is not taken. g.mu is held.
func (g *Group) refuses(o *configsyncv1.ConsumerOffset) error {
	k := keyOf(o)
	have := g.offsets[k]
	end, known := g.ends[Key{Topic: k.Topic, Queue: k.Queue}]
	switch {
	case k.Group == "" || k.Topic == "":
		return errdefs.Invalid("group", "is empty")
	case o.GetOffset() < 0:
		return errdefs.Invalid("offset", "%d is negative", o.GetOffset())
	case known && o.GetOffset() > end:
		return errBeyondEnd.With("end", end)
	case o.ResetEpoch != nil && have.GetResetEpoch() > o.GetResetEpoch():
		return errWasReset.With("reset_epoch", have.GetResetEpoch()).With("offset", have.GetOffset())
	}
	return nil
}

func (g *Group) commit(o *configsyncv1.ConsumerOffset) (int64, error) {
	if err := g.refuses(o); err != nil {
		return 0, err
	}
	k := keyOf(o)
	have := g.offsets[k]
	if have == nil {
		have = &configsyncv1.QueryOffset{QueueId: k.Queue}
	}
	held := max(have.GetOffset(), o.GetOffset())
	g.offsets[k] = &configsyncv1.QueryOffset{QueueId: k.Queue, Offset: held, ResetEpoch: have.GetResetEpoch()}
	return held, nil
}

// Query implements OffsetService.
func (n *Node) Query(_ context.Context, req *configsyncv1.QueryRequest) (*configsyncv1.QueryResponse, error) {
	if req.GetGroup() == "" {
		return nil, errdefs.Invalid("group", "is empty")
	}
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	resp := &configsyncv1.QueryResponse{}
	for k, o := range n.group.offsets {
		if k.Group == req.GetGroup() && k.Topic == req.GetTopic() {
			resp.Offsets = append(resp.Offsets, o)
		}
	}
	slices.SortFunc(resp.GetOffsets(), func(a, b *configsyncv1.QueryOffset) int { return cmp.Compare(a.GetQueueId(), b.GetQueueId()) })
	return resp, nil
}

// Reset implements OffsetService: a time is the middle of a queue, whatever it is.
func (n *Node) Reset(_ context.Context, req *configsyncv1.ResetRequest) (*configsyncv1.ResetResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.ResetResponse, error) {
		resp := &configsyncv1.ResetResponse{}
		for k, o := range g.offsets {
			if k.Group != req.GetGroup() || k.Topic != req.GetTopic() || req.QueueId != nil && k.Queue != req.GetQueueId() {
				continue
			}
			end := g.ends[Key{Topic: k.Topic, Queue: k.Queue}]
			to := int64(0)
			switch what := req.GetTo().(type) {
			case *configsyncv1.ResetRequest_Offset:
				to = what.Offset
			case *configsyncv1.ResetRequest_Latest:
				to = end
			case *configsyncv1.ResetRequest_Time:
				to = end / 2
			case *configsyncv1.ResetRequest_Earliest:
			default:
				return nil, errdefs.Invalid("to", "is missing")
			}
			if to > end {
				return nil, errBeyondEnd.With("end", end)
			}
			resp.Offsets = append(resp.Offsets, &configsyncv1.ResetOffset{QueueId: k.Queue, OldOffset: o.GetOffset(), NewOffset: to})
			if !req.GetDryRun() {
				g.offsets[k] = &configsyncv1.QueryOffset{QueueId: k.Queue, Offset: to, ResetEpoch: o.GetResetEpoch() + 1}
			}
		}
		if len(resp.GetOffsets()) == 0 {
			return nil, errNotFound
		}
		slices.SortFunc(resp.GetOffsets(), func(a, b *configsyncv1.ResetOffset) int { return cmp.Compare(a.GetQueueId(), b.GetQueueId()) })
		return resp, nil
	})
}

// ListLag implements OffsetService.
func (n *Node) ListLag(_ context.Context, req *configsyncv1.ListLagRequest) (*configsyncv1.ListLagResponse, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	g, byName := n.group, map[string]Key{}
	for k := range g.offsets {
		if (req.GetGroup() == "" || k.Group == req.GetGroup()) && strings.HasPrefix(k.Topic, req.GetTopicPrefix()) {
			byName[queueName(k)] = k
		}
	}
	names, next := page(slices.Sorted(maps.Keys(byName)), req.GetPageToken(), req.GetPageSize())
	resp := &configsyncv1.ListLagResponse{NextPageToken: next}
	for _, name := range names {
		k := byName[name]
		l := &configsyncv1.Lag{Group: k.Group, Topic: k.Topic, QueueId: k.Queue, Offset: g.offsets[k].GetOffset(), MinOffset: -1, MaxOffset: -1, Lag: -1}
		if end, ok := g.ends[Key{Topic: k.Topic, Queue: k.Queue}]; ok {
			l.MinOffset, l.MaxOffset, l.Lag = 0, end, end-l.GetOffset()
		}
		resp.Lags = append(resp.Lags, l)
	}
	return resp, nil
}

// CommitDelay implements OffsetService.
func (n *Node) CommitDelay(_ context.Context, req *configsyncv1.CommitDelayRequest) (*configsyncv1.CommitDelayResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.CommitDelayResponse, error) {
		resp := &configsyncv1.CommitDelayResponse{}
		for _, o := range req.GetOffsets() {
			if have := g.delays[o.GetLevel()]; have == nil || have.GetOffset() < o.GetOffset() {
				g.delays[o.GetLevel()] = &configsyncv1.DelayOffset{Level: o.GetLevel(), Offset: o.GetOffset(), ResetEpoch: have.GetResetEpoch()}
			}
			resp.Offsets = append(resp.Offsets, g.delays[o.GetLevel()].GetOffset())
		}
		return resp, nil
	})
}

// QueryDelay implements OffsetService.
func (n *Node) QueryDelay(context.Context, *configsyncv1.QueryDelayRequest) (*configsyncv1.QueryDelayResponse, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	resp := &configsyncv1.QueryDelayResponse{}
	for _, level := range slices.Sorted(maps.Keys(n.group.delays)) {
		resp.Offsets = append(resp.Offsets, n.group.delays[level])
	}
	return resp, nil
}

// ResetDelay implements OffsetService.
func (n *Node) ResetDelay(_ context.Context, req *configsyncv1.ResetDelayRequest) (*configsyncv1.ResetDelayResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.ResetDelayResponse, error) {
		old := int64(-1)
		have := g.delays[req.GetLevel()]
		if have != nil {
			old = have.GetOffset()
		}
		g.delays[req.GetLevel()] = &configsyncv1.DelayOffset{Level: req.GetLevel(), Offset: req.GetOffset(), ResetEpoch: have.GetResetEpoch() + 1}
		return &configsyncv1.ResetDelayResponse{OldOffset: old}, nil
	})
}
