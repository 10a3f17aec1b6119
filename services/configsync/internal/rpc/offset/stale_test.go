package offset

import (
	"context"
	"iter"
	"testing"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// resetBetween has a queue 0 that is reset between the look at it and the commit.
type resetBetween struct{ reset bool }

func (r *resetBetween) Offset(_, _ string, queue int32) (entry.QueueOffset, bool) {
	if r.reset && queue == 0 {
		return entry.QueueOffset{Queue: queue, Epoch: 1, Offset: 5}, true
	}
	return entry.QueueOffset{Queue: queue, Offset: 100}, true
}

func (r *resetBetween) CommitOffsets(_ context.Context, cs []table.Commit, _ bool) (registry.CommitResult, error) {
	r.reset = true
	for _, c := range cs {
		if c.Queue == 0 {
			return registry.CommitResult{Staled: 1}, nil // and none is taken
		}
	}
	return registry.CommitResult{Taken: len(cs)}, nil
}

func (*resetBetween) Offsets(string, string) []entry.QueueOffset                  { return nil }
func (*resetBetween) Standing(string) iter.Seq2[string, *entry.Offsets]           { return nil }
func (*resetBetween) ResetOffsets(context.Context, []table.Reset) (uint32, error) { return 0, nil }

type open struct{}

func (open) Enter() error                           { return nil }
func (open) Leave()                                 {}
func (open) Reign() (int64, <-chan struct{}, error) { return 1, nil, nil }
func (open) Serves() error                          { return nil }

// TestAResetBetweenLookAndCommit: the consumer is told of it, and no other offset of a batch is taken; a stream goes on without it.
func TestAResetBetweenLookAndCommit(t *testing.T) {
	offsets := []*configsyncv1.ConsumerOffset{
		{Topic: "T", Group: "G", QueueId: 1, Offset: 150, ResetEpoch: new(uint32)}, {Topic: "T", Group: "G", QueueId: 0, Offset: 150, ResetEpoch: new(uint32)},
	}
	_, err := New(&resetBetween{}, nil, open{}, nil).CommitBatch(t.Context(), &configsyncv1.CommitBatchRequest{Offsets: offsets})
	if e := errdefs.As(err); e == nil || e.Reason != "OFFSET_WAS_RESET" || e.Field != "offsets[1].reset_epoch" {
		t.Errorf("%v", err)
	}
	failures, err := New(&resetBetween{}, nil, open{}, nil).commitSome(t.Context(), &configsyncv1.CommitStreamRequest{Sequence: 1, Offsets: offsets})
	if err != nil || len(failures) != 1 || failures[0].GetReason() != "OFFSET_WAS_RESET" || failures[0].GetOffset().GetQueueId() != 0 || failures[0].GetOffset().GetOffset() != 150 {
		t.Errorf("%v, %v", failures, err)
	}
}
