package rpc

import (
	"strconv"
	"strings"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

const (
	defaultDiffs = 1000
	diffsAnswer  = 256     // differences of one answer
	bytesAnswer  = 1 << 20 // behind which it ends earlier
)

// Diff implements ConfigAdminService.
func (s *Admin) Diff(req *configsyncv1.DiffRequest, stream grpc.ServerStreamingServer[configsyncv1.DiffResponse]) error {
	kinds, err := wire.KindsOf("kinds", req.GetKinds())
	switch {
	case err != nil:
		return err
	case req.GetAddress() == "":
		return errdefs.Invalid("address", "is empty")
	case req.GetLimit() < 0:
		return errdefs.Invalid("limit", "%d is negative", req.GetLimit())
	}
	d := &differ{stream: stream, left: defaultDiffs}
	if req.GetLimit() > 0 {
		d.left = int(req.GetLimit())
	}
	if err := s.tables.Flush(stream.Context()); err != nil {
		return err
	}
	var summaries []*configsyncv1.DiffSummary
	for _, k := range kinds {
		if err := s.tables.Whole(k); err != nil {
			return err
		}
		there, err := s.peers.Pull(stream.Context(), req.GetAddress(), k)
		if err != nil {
			return err
		}
		sum, err := d.kind(s.tables.Snapshot(k), there)
		if err != nil {
			return err
		}
		summaries = append(summaries, sum)
	}
	return stream.Send(&configsyncv1.DiffResponse{Differences: d.next, Summaries: summaries})
}

// differ lists differences in answers of some size and counts the rest.
type differ struct {
	stream grpc.ServerStreamingServer[configsyncv1.DiffResponse]
	left   int // that may still be listed
	next   []*configsyncv1.Difference
	bytes  int // of next
}

func (d *differ) kind(here, there *table.Table) (*configsyncv1.DiffSummary, error) {
	sum := &configsyncv1.DiffSummary{Kind: wire.Kind(here.Kind()), Here: wire.TableVersion(here), There: wire.TableVersion(there)}
	differing := map[string]bool{}
	for x := range table.Diff(here, there) {
		if !differing[x.Key] {
			differing[x.Key] = true
			_, inHere := here.Get(x.Key)
			_, inThere := there.Get(x.Key)
			switch {
			case !inThere:
				sum.OnlyHere++
			case !inHere:
				sum.OnlyThere++
			default:
				sum.Different++
			}
		}
		if d.left == 0 {
			continue
		}
		d.left--
		d.next = append(d.next, differenceOf(x))
		d.bytes += len(x.Key) + len(x.Left) + len(x.Right)
		if len(d.next) == diffsAnswer || d.bytes >= bytesAnswer {
			if err := d.stream.Send(&configsyncv1.DiffResponse{Differences: d.next}); err != nil {
				return nil, err
			}
			d.next, d.bytes = nil, 0
		}
	}
	sum.Same = int64(here.Len()) - sum.GetOnlyHere() - sum.GetDifferent()
	return sum, nil
}

func differenceOf(x table.Difference) *configsyncv1.Difference {
	out := &configsyncv1.Difference{Kind: wire.Kind(x.Kind), Key: x.Key, Field: x.Field, Here: x.Left, There: x.Right, QueueId: -1}
	if n, err := strconv.ParseInt(strings.TrimPrefix(x.Field, "queue "), 10, 32); err == nil && x.Kind == entry.ConsumerOffsets {
		out.QueueId = int32(n)
	}
	if level, ok := entry.ParseDelayKey(x.Key); ok && x.Kind == entry.DelayOffsets {
		out.QueueId = level
	}
	return out
}
