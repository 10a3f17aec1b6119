package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

var benchNumbers = regexp.MustCompile(`in \S+: \d+/s, [0-9.]+ MB/s`)

func TestBenchPuts(t *testing.T) {
	for _, verb := range []string{"put", "stream"} {
		s := clienttest.Start(t, clienttest.Options{})
		r := ctl(t, s.Addr(), "", "bench", verb, "-t", "demo", "--size", "10", "--count", "500", "-c", "8", "--acks", "2")
		lines := strings.Split(r.out, "\n")
		if r.code != exitOK || len(lines) < 6 || benchNumbers.ReplaceAllString(lines[0], "in TIME") != "500 messages in TIME" ||
			lines[1] != "500 PUT_OK" || !strings.HasPrefix(lines[3], "mean ") || !strings.Contains(lines[5], "PUTS") {
			t.Errorf("%s: %+v", verb, r)
		}
		if want := "putting bodies of 10 B to topic demo 500 times, 8 at a time; Ctrl-C ends it early\n"; r.err != want {
			t.Errorf("%s: stderr %q, want %q", verb, r.err, want)
		}
		stored := s.Stored("demo", 0)
		if len(stored) != 500 || string(stored[0].GetMessage().GetBody()) != "tandemctl " {
			t.Errorf("%s: %d messages, the first is %v", verb, len(stored), stored[0])
		}
	}
}

func TestBenchGet(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{Queues: 2})
	fill(t, s, 5) // three in queue 0, two in queue 1
	r := ctl(t, s.Addr(), "", "bench", "get", "-t", "demo", "--count", "8", "-c", "2", "--max", "1", "-o", "json")
	var got loadReport
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitOK || r.err != "" {
		t.Fatalf("%v: %+v", err, r)
	}
	if got.Benchmark != "get" || got.Calls != 8 || got.Messages != 8 || got.Statuses["FOUND"] != 8 || got.Acks != nil || got.Size != 0 {
		t.Errorf("%+v", got)
	}
	ctl(t, s.Addr(), "", "bench", "get", "-t", "dmeo").want(t, exitFailed, "",
		"tandemctl: there is no message of topic \"dmeo\"\n  -> did you mean \"demo\"? `tandemctl queues` lists all\n")
}

func TestBenchJSON(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	r := ctl(t, s.Addr(), "", "bench", "put", "--for", "100ms", "-c", "4", "--acks", "0", "-o", "json")
	var got loadReport
	d := json.NewDecoder(strings.NewReader(r.out))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil || r.code != exitOK {
		t.Fatalf("%v: %+v", err, r)
	}
	l := got.Latency
	if got.Messages == 0 || got.Calls != got.Messages || got.Statuses["PUT_OK"] != got.Messages || got.PerSecond <= 0 || got.MBPerSecond <= 0 ||
		got.Seconds < 0.1 || got.Interrupted || got.Acks == nil || *got.Acks != 0 || got.Size != 200 || got.Topic != "bench" || got.Concurrency != 4 {
		t.Errorf("%s", r.out)
	}
	if !slices.IsSorted([]float64{0, l.P50, l.P90, l.P99, l.P999, l.Max}) || l.Mean <= 0 || l.Mean > l.Max {
		t.Errorf("%+v", l)
	}
	sum := int64(0)
	for _, h := range got.Histogram {
		sum += h.Count
	}
	if sum != got.Messages {
		t.Errorf("the histogram has %d of %d messages", sum, got.Messages)
	}
}

func TestBenchCountsStatuses(t *testing.T) {
	for _, verb := range []string{"put", "stream"} {
		s := clienttest.Start(t, clienttest.Options{})
		var n atomic.Int64
		s.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
			if n.Add(1)%4 == 0 {
				return client.StatusFlushSlaveTimeout, nil
			}
			return client.StatusOK, nil
		})
		r := ctl(t, s.Addr(), "", "bench", verb, "--count", "100", "-c", "3")
		if r.code != exitFailed || !strings.Contains(r.out, "\n25 FLUSH_SLAVE_TIMEOUT, 75 PUT_OK\n") ||
			!strings.Contains(r.err, "tandemctl: FLUSH_SLAVE_TIMEOUT: in the master's log, fewer slaves") {
			t.Errorf("%s: %+v", verb, r)
		}
	}
}

// TestBenchGoesOnWhereNobodyKnows: a put without an answer is counted as such.
func TestBenchGoesOnWhereNobodyKnows(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	var n atomic.Int64
	s.OnPut(func(*client.Message) (storagev1.PutStatus, error) {
		if n.Add(1)%10 == 0 {
			return 0, errdefs.New(errdefs.Internal, "PANIC", "the call failed inside the server")
		}
		return client.StatusOK, nil
	})
	r := ctl(t, s.Addr(), "", "bench", "put", "--count", "100", "-c", "3")
	if r.code != exitFailed || !strings.Contains(r.out, "\n10 OUTCOME_UNKNOWN, 90 PUT_OK\n") || !strings.Contains(r.err, "may or may not be stored") {
		t.Errorf("%+v", r)
	}
}

// TestBenchEndsAtAnError prints what was measured until then.
func TestBenchEndsAtAnError(t *testing.T) {
	for _, verb := range []string{"put", "stream"} {
		s := clienttest.Start(t, clienttest.Options{})
		out, errOut, stop := startCtl(t, s.Addr(), "bench", verb, "--for", "1h", "-c", "3", "--timeout", "3s")
		waitStored(t, s, 100)
		s.Stop()
		out.waitFor(t, "mean ") // by itself
		if code := stop(); code != exitFailed || !strings.Contains(errOut.String(), "connection refused") && !strings.Contains(errOut.String(), "cannot reach") {
			t.Errorf("%s: exit code %d\n%s\n%s", verb, code, out, errOut)
		}
	}
}

// waitStored returns when the storage has n messages of the benchmark's topic.
func waitStored(t *testing.T, s *clienttest.Storage, n int) {
	t.Helper()
	for tick := time.NewTicker(time.Millisecond); len(s.Stored("bench", 0)) < n; {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("no messages come")
		}
	}
}

// TestBenchEndsEarly: Ctrl-C is no failure, and what was measured is printed.
func TestBenchEndsEarly(t *testing.T) {
	for _, verb := range []string{"put", "stream"} {
		s := clienttest.Start(t, clienttest.Options{})
		out, errOut, stop := startCtl(t, s.Addr(), "bench", verb, "--for", "1h", "-c", "3", "-o", "json")
		waitStored(t, s, 100)
		if code := stop(); code != exitOK || errOut.String() != "" {
			t.Errorf("%s: exit code %d\n%s", verb, code, errOut)
		}
		var got loadReport
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || !got.Interrupted || got.Messages < 90 || len(got.Statuses) != 1 {
			t.Errorf("%s: %v: %s", verb, err, out)
		}
	}
}

func TestBenchUsage(t *testing.T) {
	for _, args := range [][]string{
		{"tail"},
		{"put", "x"},
		{"put", "--size", "0"},
		{"put", "--size", "1MiB", "-c", "2000"},
		{"put", "-c", "0"},
		{"put", "--for", "0"},
		{"put", "--for", "-1s"},
		{"put", "--count", "-1"},
		{"put", "--acks", "-2"},
		{"put", "--wait", "-1s"},
		{"put", "--queue", "-2"},
		{"put", "--topic", ""},
		{"put", "--max", "1"},
		{"get", "--max", "2000"},
		{"get", "--size", "1"},
	} {
		if r := ctl(t, "127.0.0.1:1", "", append([]string{"bench"}, args...)...); r.code != exitUsage || r.out != "" || r.err == "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestLatencies(t *testing.T) {
	var h latencies
	if h.percentile(0.5) != 0 || h.mean() != 0 || len(h.spans()) != 0 {
		t.Error("an empty one is not empty")
	}
	r := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(1) << r.IntN(36)
		d += time.Duration(r.Int64N(int64(d)))
		h.add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, p := range []float64{0, 0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(int(p*float64(len(all))+0.999999)-1, 0)]
		if got := h.percentile(p); got < want || got > want+want/steps {
			t.Errorf("percentile %v: %v, want %v and at most 1/%d more", p, got, want, steps)
		}
	}
	sum, before := int64(0), time.Duration(0)
	for _, s := range h.spans() {
		if sum += s.count; s.upTo <= before {
			t.Errorf("a span ends at %v, the one before it at %v", s.upTo, before)
		}
		before = s.upTo
	}
	if sum != int64(len(all)) || len(h.spans()) > mostSpans || before != all[len(all)-1] {
		t.Errorf("%d spans with %d, the last up to %v", len(h.spans()), sum, before)
	}
	h.add(1 << 50) // above all buckets
	h.add(-1)
	if h.percentile(1) != upTo(buckets-1) && h.percentile(1) != 1<<50 {
		t.Errorf("%v", h.percentile(1))
	}
}

// TestBuckets: each value is in a bucket that ends at it or above, and above the end of the bucket before.
func TestBuckets(t *testing.T) {
	for shift := range topBit {
		for _, d := range []int64{-1, 0, 1, 7} {
			v := max(int64(1)<<shift+d, 0)
			if i := bucketOf(v); int64(upTo(i)) < v || i > 0 && int64(upTo(i-1)) >= v {
				t.Errorf("%d is in bucket %d, up to %d", v, i, upTo(i))
			}
		}
	}
}

func TestPrintedHistogram(t *testing.T) {
	var h latencies
	for range 3 {
		h.add(100 * time.Microsecond)
	}
	h.add(150 * time.Microsecond)
	var b bytes.Buffer
	h.print(&b, "PUTS")
	want := `     UP TO        PUTS    SHARE
     115µs           3   75.00%  ##################################################
     131µs           0    0.00%
     150µs           1   25.00%  ################
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	for d, want := range map[time.Duration]string{
		0: "0s", 850: "850ns", 12_340: "12.3µs", 999_600: "1.00ms", 2_500_000: "2.50ms", 118_000: "118µs", 3_100_000_000: "3.10s", time.Hour: "3600s",
	} {
		if got := fineDuration(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
