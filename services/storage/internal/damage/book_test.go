package damage

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tandemlog/tandem/services/storage/internal/check"
)

func open(t *testing.T) *Book {
	t.Helper()
	b, err := NewBook(nil)
	if err != nil {
		t.Fatal(err)
	}
	var clock time.Duration
	b.now = func() time.Time { clock++; return time.Unix(0, int64(clock)) }
	return b
}

func (b *Book) text() string {
	k := b.Known()
	s := fmt.Sprintf("%d %d", k.Records, k.Units)
	for _, p := range k.Places {
		s += fmt.Sprintf(" %d-%d%s(%s)", p.From, p.To, p.Unit, p.By)
	}
	return s
}

func TestABook(t *testing.T) {
	b := open(t)
	unit := check.Finding{Kind: check.UnitWrong, Offset: 300, End: 400, Topic: "t", QueueID: 1, QueueOffset: 7}
	want := func(s string) {
		t.Helper()
		if got := b.text(); got != s {
			t.Errorf("got  %s\nwant %s", got, s)
		}
	}
	want("0 0")
	b.Record(ByRecovery, 500, 600)
	b.Record(ByDispatch, 100, 200)
	b.Found(check.Finding{Kind: check.BadRecord, Offset: 300, End: 400})
	b.Found(unit)
	want("3 1 100-200(dispatch) 300-400(scrub) 300-400t/1 unit 7(scrub) 500-600(recovery)")
	since := b.now()
	b.Found(unit) // again, by a scrub that has found nothing else
	b.Record(ByScrub, 500, 600)
	b.Sound(100, 550, since)
	want("1 1 300-400t/1 unit 7(scrub) 500-600(recovery)")
	b.Repaired(300, 400)
	want("1 0 500-600(recovery)")
	b.Cut(500)
	want("0 0")
}

func TestABookIsBounded(t *testing.T) {
	b := open(t)
	for i := range int64(2 * most) {
		b.Record(ByDispatch, 10*i, 10*i+10)
	}
	b.Record(ByDispatch, 0, 10) // again
	k := b.Known()
	if k.Records != 2*most || len(b.places) != most || len(k.Places) != 2*ends || k.Places[0].From != 0 || k.Places[2*ends-1].From != 10*(most-1) {
		t.Errorf("%d, %d in the book, shows %v", k.Records, len(b.places), k.Places)
	}
	b.Repaired(0, 10*most)
	if k := b.Known(); k.Records != 0 {
		t.Errorf("%d left", k.Records)
	}
}

func TestTheMetric(t *testing.T) {
	reader := metric.NewManualReader()
	b, err := NewBook(metric.NewMeterProvider(metric.WithReader(reader)).Meter("x"))
	if err != nil {
		t.Fatal(err)
	}
	b.Record(ByRecovery, 1, 2)
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Gauge[int64]).DataPoints {
		kind, _ := p.Attributes.Value("kind")
		got[kind.AsString()] = p.Value
	}
	if got["record"] != 1 || got["unit"] != 0 || len(got) != 2 {
		t.Errorf("got %v", got)
	}
}
