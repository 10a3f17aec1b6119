package config

import (
	"context"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
)

// Types of offsets.
type (
	// ResetRequest says what a reset sets.
	ResetRequest = configsyncv1.ResetRequest
	// ResetOffset is what a reset set, or would set.
	ResetOffset = configsyncv1.ResetOffset
	// DelayOffset is the next queue offset that a delay level delivers.
	DelayOffset = configsyncv1.DelayOffset
)

// Offsets are those of consumer groups and delay levels. All methods may be called concurrently.
type Offsets struct{ c *Client }

// MaxCommits is how many offsets one CommitBatch takes.
const MaxCommits = 1024

// Offsets returns the offsets.
func (c *Client) Offsets() *Offsets { return &Offsets{c} }

// Commit sets the offset of one queue and returns the one that holds then: a higher one stays. With durable it is on the master's
// disk when answered.
func (o *Offsets) Commit(ctx context.Context, offset *Offset, durable bool) (int64, error) {
	var resp *configsyncv1.CommitResponse
	err := o.c.change(ctx, true, func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
		resp, err = n.offsets.Commit(ctx, &configsyncv1.CommitRequest{Offset: offset, Durable: durable}, co...)
		return err
	})
	return resp.GetOffset(), err
}

// CommitBatch commits up to MaxCommits offsets, all or none; it returns those that hold then.
func (o *Offsets) CommitBatch(ctx context.Context, offsets []*Offset, durable bool) ([]int64, error) {
	var resp *configsyncv1.CommitBatchResponse
	err := o.c.change(ctx, true, func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
		resp, err = n.offsets.CommitBatch(ctx, &configsyncv1.CommitBatchRequest{Offsets: offsets, Durable: durable}, co...)
		return err
	})
	return resp.GetOffsets(), err
}

// Query returns the offsets of a group in a topic, by queue.
func (o *Offsets) Query(ctx context.Context, group, topic string) ([]*HeldOffset, error) {
	var resp *configsyncv1.QueryResponse
	err := o.c.read(ctx, func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
		resp, err = n.offsets.Query(ctx, &configsyncv1.QueryRequest{Group: group, Topic: topic}, co...)
		return err
	})
	return resp.GetOffsets(), err
}

// Reset sets offsets, backwards too, or only says what it would set (DryRun). It is not repeated once it has left.
func (o *Offsets) Reset(ctx context.Context, req *ResetRequest) ([]*ResetOffset, error) {
	var resp *configsyncv1.ResetResponse
	err := o.c.change(ctx, req.GetDryRun(), func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
		resp, err = n.offsets.Reset(ctx, req, co...)
		return err
	})
	return resp.GetOffsets(), err
}

// Lag calls f with where a group, or all for "", stands in each queue of the topics that begin with a prefix.
func (o *Offsets) Lag(ctx context.Context, group, topicPrefix string, f func(*Lag) error) error {
	return pages(func(token string) ([]*Lag, string, error) {
		req := &configsyncv1.ListLagRequest{Group: group, TopicPrefix: topicPrefix, PageToken: token}
		var resp *configsyncv1.ListLagResponse
		err := o.c.read(ctx, func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
			resp, err = n.offsets.ListLag(ctx, req, co...)
			return err
		})
		return resp.GetLags(), resp.GetNextPageToken(), err
	}, f)
}

// CommitDelay sets offsets of delay levels, on the master's disk when answered, and returns those that hold then.
func (o *Offsets) CommitDelay(ctx context.Context, offsets []*DelayOffset) ([]int64, error) {
	var resp *configsyncv1.CommitDelayResponse
	err := o.c.change(ctx, true, func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
		resp, err = n.offsets.CommitDelay(ctx, &configsyncv1.CommitDelayRequest{Offsets: offsets}, co...)
		return err
	})
	return resp.GetOffsets(), err
}

// QueryDelay returns the offsets of all delay levels.
func (o *Offsets) QueryDelay(ctx context.Context) ([]*DelayOffset, error) {
	var resp *configsyncv1.QueryDelayResponse
	err := o.c.read(ctx, func(ctx context.Context, n *node, co ...grpc.CallOption) (err error) {
		resp, err = n.offsets.QueryDelay(ctx, &configsyncv1.QueryDelayRequest{}, co...)
		return err
	})
	return resp.GetOffsets(), err
}

// ResetDelay sets the offset of a delay level, backwards too, and returns the one before, -1 where there was none.
func (o *Offsets) ResetDelay(ctx context.Context, level int32, offset int64) (int64, error) {
	old := int64(-1)
	err := o.c.change(ctx, false, func(ctx context.Context, n *node, co ...grpc.CallOption) error {
		resp, err := n.offsets.ResetDelay(ctx, &configsyncv1.ResetDelayRequest{Level: level, Offset: offset}, co...)
		if err == nil {
			old = resp.GetOldOffset()
		}
		return err
	})
	return old, err
}
