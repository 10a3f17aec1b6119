package main

import (
	"fmt"
	"io"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"
)

// A histogram's buckets: one for each nanosecond below 2*steps, then `steps` for each doubling, so that a bucket is at most
// 1/steps of its values wide, up to 2^topBit nanoseconds (more than half an hour).
const (
	stepBits = 6
	steps    = 1 << stepBits
	topBit   = 41
	buckets  = (topBit - stepBits + 1) * steps
)

// latencies counts durations; its size does not grow. All may add at a time; it is read when nobody does.
type latencies struct {
	counts [buckets]atomic.Int64
	n, sum atomic.Int64
	most   atomic.Int64
}

func (h *latencies) add(d time.Duration) {
	v := max(int64(d), 0)
	h.counts[bucketOf(v)].Add(1)
	h.n.Add(1)
	h.sum.Add(v)
	for old := h.most.Load(); v > old && !h.most.CompareAndSwap(old, v); old = h.most.Load() {
	}
}

// bucketOf returns the bucket of a value, 0 or more.
func bucketOf(v int64) int {
	shift := max(bits.Len64(uint64(v))-stepBits-1, 0) //nolint:gosec // not negative
	return min(shift*steps+int(v>>shift), buckets-1)
}

// upTo returns the largest value of a bucket.
func upTo(bucket int) time.Duration {
	shift := max(bucket/steps-1, 0)
	return time.Duration(int64(bucket-shift*steps+1)<<shift - 1)
}

// percentile returns a value that the part p, 0 to 1, does not exceed, to within a bucket.
func (h *latencies) percentile(p float64) time.Duration {
	rank, seen := int64(p*float64(h.n.Load())+0.999999), int64(0)
	for i := range h.counts {
		if seen += h.counts[i].Load(); seen >= max(rank, 1) {
			return min(upTo(i), time.Duration(h.most.Load()))
		}
	}
	return time.Duration(h.most.Load())
}

func (h *latencies) mean() time.Duration {
	return time.Duration(h.sum.Load() / max(h.n.Load(), 1))
}

// span is a stretch of a histogram: what is above the one before it, up to and with this.
type span struct {
	upTo  time.Duration
	count int64
}

// mostSpans bounds the lines of a printed histogram.
const mostSpans = 20

// spans divides the values evenly by their logarithms, four stretches for each doubling or fewer where they would be too many.
func (h *latencies) spans() []span {
	first, last := -1, 0
	for i := range h.counts {
		if h.counts[i].Load() > 0 {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if first < 0 {
		return nil
	}
	width := steps / 4
	for last/width-first/width >= mostSpans {
		width *= 2
	}
	var all []span
	for from := first / width * width; from <= last; from += width {
		s := span{upTo: upTo(min(from+width, buckets) - 1)}
		for i := from; i < min(from+width, buckets); i++ {
			s.count += h.counts[i].Load()
		}
		all = append(all, s)
	}
	all[len(all)-1].upTo = time.Duration(h.most.Load())
	return all
}

// print writes the spans with bars.
func (h *latencies) print(w io.Writer, unit string) {
	const bar = 50
	spans, highest := h.spans(), int64(1)
	for _, s := range spans {
		highest = max(highest, s.count)
	}
	sayf(w, "%10s  %10s  %7s\n", "UP TO", unit, "SHARE")
	for _, s := range spans {
		line := fmt.Sprintf("%10s  %10d  %6.2f%%  %s", fineDuration(s.upTo), s.count, 100*float64(s.count)/float64(h.n.Load()),
			strings.Repeat("#", int(bar*s.count/highest)))
		say(w, strings.TrimRight(line, " "))
	}
}

// fineDuration writes three digits: 850ns, 12.3µs, 118µs, 2.50ms, 3.10s.
func fineDuration(d time.Duration) string {
	if d < time.Microsecond {
		return d.String()
	}
	v, unit := float64(d)/1e3, "µs"
	for _, next := range []string{"ms", "s"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1e3, next
	}
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f%s", v, unit)
	case v < 99.95:
		return fmt.Sprintf("%.1f%s", v, unit)
	}
	return fmt.Sprintf("%.0f%s", v, unit)
}
