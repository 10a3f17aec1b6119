package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Stretches of the comparison, bytes.
const (
	minStretch = 4 << 10  // the storage's smallest
	shownBytes = 16       // of each log where they differ
	perCall    = 64 << 20 // summed by one call, so that progress is seen and no call takes long
)

// Why two logs differ.
const (
	whyBytes   = "BYTES"
	whyShorter = "SHORTER"
)

// node is what a comparison needs of one node. The methods may be called concurrently.
type node interface {
	Address() string
	Status(ctx context.Context) (*client.NodeStatus, error)
	Checksum(ctx context.Context, from, to, stretch int64) (*client.Checksums, error)
	Range(ctx context.Context, from, to int64, w io.Writer) (int64, error)
}

// verifier compares the logs of two nodes.
type verifier struct {
	a, b     node
	f        *verifyFlags
	progress *progress
}

func (v *verifier) run(ctx context.Context) (*verdict, error) {
	began := time.Now()
	r := &verdict{}
	until, err := v.agree(ctx, r)
	if err != nil {
		return nil, err
	}
	common := min(until, r.A.Written, r.B.Written)
	v.progress.start(r.From, common)
	r.To = common
	at, differs, err := v.walk(ctx, r.From, common)
	if err != nil {
		return nil, err
	}
	switch {
	case differs != nil:
		r.To, r.Diff = at, differs
	case common < until:
		r.Diff = &diff{Offset: common, Why: whyShorter}
	default:
		r.Equal = true
	}
	r.took = time.Since(began)
	return r, nil
}

// agree finds out where to begin and up to where to compare, and gives the shorter log time to get there.
func (v *verifier) agree(ctx context.Context, r *verdict) (until int64, err error) {
	if err := v.ends(ctx, r); err != nil {
		return 0, err
	}
	r.From = max(r.A.First, r.B.First)
	if r.A.First != r.B.First {
		r.Notes = append(r.Notes, fmt.Sprintf("the logs begin at different offsets (retention): compared from %d", r.From))
	}
	if v.f.from >= 0 {
		if v.f.from < r.From {
			return 0, errdefs.Newf(errdefs.OutOfRange, "OFFSET_OUTSIDE", "--from %d lies before what both logs have", v.f.from).
				WithRemedy("the first offset that both have is %d", r.From)
		}
		r.From = v.f.from
	}
	switch v.f.until {
	case "min":
		until = min(r.A.Written, r.B.Written)
	case "end":
		until = max(r.A.Written, r.B.Written)
	default:
		if until, err = strconv.ParseInt(v.f.until, 10, 64); err != nil {
			return 0, err
		}
	}
	if until < r.From || min(r.A.Written, r.B.Written) < r.From {
		return 0, errdefs.Newf(errdefs.OutOfRange, "OFFSET_OUTSIDE", "there is nothing to compare: both logs reach %d only, and %d is where to begin",
			min(until, r.A.Written, r.B.Written), r.From).WithRemedy("compare with --from and --until inside of both logs")
	}
	return until, v.awaitEnds(ctx, r, until)
}

func (v *verifier) ends(ctx context.Context, r *verdict) error {
	g, ctx := errgroup.WithContext(ctx)
	var who [2]*client.NodeStatus
	for i, one := range []struct {
		n  node
		to *logEnds
	}{{v.a, &r.A}, {v.b, &r.B}} {
		g.Go(func() error {
			st, err := one.n.Status(ctx)
			m := st.GetWatermarks()
			who[i], *one.to = st, logEnds{one.n.Address(), m.GetFirstOffset(), m.GetWrittenOffset(), m.GetReadableOffset()}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if a, b := who[0], who[1]; a.GetStartedAt() != nil && proto.Equal(a.GetStartedAt(), b.GetStartedAt()) &&
		a.GetNodeId() == b.GetNodeId() && a.GetBrokerName() == b.GetBrokerName() && a.GetCluster() == b.GetCluster() {
		return errdefs.Newf(errdefs.InvalidArgument, "SAME_NODE", "%s and %s are the same node, %s/%d: there is nothing to compare",
			r.A.Address, r.B.Address, a.GetBrokerName(), a.GetNodeId()).WithRemedy("name two nodes")
	}
	return nil
}

// awaitEnds gives both logs the wait to reach until.
func (v *verifier) awaitEnds(ctx context.Context, r *verdict, until int64) error {
	deadline := time.Now().Add(v.f.wait)
	for r.A.Written < until || r.B.Written < until {
		if time.Now().After(deadline) {
			return nil
		}
		v.progress.say("waiting for the shorter log, %s missing", sizeText(until-min(r.A.Written, r.B.Written)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if err := v.ends(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// walk compares [from, to) and returns how far both are equal and, if that is not to, the difference there.
func (v *verifier) walk(ctx context.Context, from, to int64) (int64, *diff, error) {
	for from < to {
		end := min(from+max(perCall/v.f.stretch, 1)*v.f.stretch, to)
		bad, upTo, err := v.compare(ctx, from, end, v.f.stretch)
		if err != nil {
			return from, nil, err
		}
		if bad >= 0 {
			return v.narrow(ctx, bad, min(bad+v.f.stretch, end), to)
		}
		from = upTo
		v.progress.at(from)
	}
	return from, nil, nil
}

// compare returns the start of the first stretch that differs, or -1, and up to where both have been summed.
func (v *verifier) compare(ctx context.Context, from, to, stretch int64) (bad, upTo int64, err error) {
	var a, b *client.Checksums
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { a, err = v.a.Checksum(gctx, from, to, stretch); return err })
	g.Go(func() (err error) { b, err = v.b.Checksum(gctx, from, to, stretch); return err })
	if err := g.Wait(); err != nil {
		return -1, from, err
	}
	upTo = min(a.GetToOffset(), b.GetToOffset(), to)
	n := int((upTo - from + stretch - 1) / stretch)
	if upTo <= from || len(a.GetChecksums()) < n || len(b.GetChecksums()) < n {
		return -1, from, errNoProgress
	}
	if a.GetToOffset() != b.GetToOffset() && (upTo-from)%stretch != 0 {
		// The last stretch of one is longer than the other's: only whole ones are comparable.
		if upTo -= (upTo - from) % stretch; upTo == from {
			return -1, from, errNoProgress
		}
		n--
	}
	for i := range n {
		if a.GetChecksums()[i] != b.GetChecksums()[i] {
			return from + int64(i)*stretch, upTo, nil
		}
	}
	return -1, upTo, nil
}

// narrow finds the first byte that differs in [from, to), which has different checksums: halves it down to the smallest
// stretch and then reads the bytes, and a few more to show, up to limit.
func (v *verifier) narrow(ctx context.Context, from, to, limit int64) (int64, *diff, error) {
	for to-from > minStretch {
		half := max((to-from)/2/minStretch, 1) * minStretch
		bad, _, err := v.compare(ctx, from, from+half, half)
		if err != nil {
			return from, nil, err
		}
		if bad >= 0 {
			to = from + half
		} else {
			from += half
		}
	}
	shown := min(to+shownBytes, limit)
	var a, b bytes.Buffer
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { _, err := v.a.Range(gctx, from, shown, &a); return err })
	g.Go(func() error { _, err := v.b.Range(gctx, from, shown, &b); return err })
	if err := g.Wait(); err != nil {
		return from, nil, err
	}
	i := firstDifference(a.Bytes(), b.Bytes())
	if i >= int(to-from) {
		return from, nil, errdefs.Newf(errdefs.Aborted, "CHANGED", "the bytes from %d to %d differed a moment ago and are equal now", from, to).
			WithRemedy("a log was cut or mended meanwhile: run it again")
	}
	return from + int64(i), &diff{Offset: from + int64(i), Why: whyBytes, A: hexAt(a.Bytes(), i), B: hexAt(b.Bytes(), i)}, nil
}

// progress draws one line on a terminal.
type progress struct {
	w          io.Writer
	on         bool
	began      time.Time
	first, end int64
}

func (p *progress) start(first, end int64) { p.began, p.first, p.end = time.Now(), first, end }

// at shows how far the comparison is.
func (p *progress) at(offset int64) {
	const width = 30
	done, all := offset-p.first, max(p.end-p.first, 1)
	full := int(done * width / all)
	rate := float64(done) / max(time.Since(p.began).Seconds(), 1e-3)
	p.say("[%s%s] %3d%%  %s of %s, %s/s", strings.Repeat("#", full), strings.Repeat(".", width-full), done*100/all,
		sizeText(done), sizeText(all), sizeText(int64(rate)))
}

func (p *progress) say(format string, args ...any) {
	if p.on {
		sayf(p.w, "\r\x1b[K%s", fmt.Sprintf(format, args...))
	}
}

func (p *progress) clear() {
	if p.on {
		sayf(p.w, "\r\x1b[K")
	}
}
