package damage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/storage/internal/check"
)

// Who finds damage.
const (
	ByRecovery = "recovery"
	ByDispatch = "dispatch"
	ByScrub    = "scrub"
)

const (
	most = 4096 // places in the book
	ends = 8    // places that Known tells from either end
)

// Place is one damaged place.
type Place struct {
	From, To int64  // of the log, bytes; of a unit those of its record
	Unit     string // topic/queue unit N; empty: the record is damaged
	By       string // who has found it last
	at       time.Time
}

// Known sums up a book.
type Known struct {
	Records, Units int64
	// Places by offset: all, or the first ones and the last ones.
	Places []Place
}

type key struct {
	from int64
	unit string
}

// Book may be used by many at once.
type Book struct {
	now    func() time.Time
	mu     sync.Mutex // guards what follows
	places map[key]Place
	more   Known // the numbers of those that found no room
}

// NewBook makes an empty Book. The instrument of this package is storage.damage.known ({place}, kind record or unit), a gauge.
func NewBook(m metric.Meter) (*Book, error) {
	if m == nil {
		m = noop.Meter{}
	}
	b := &Book{now: time.Now, places: map[key]Place{}}
	_, err := m.Int64ObservableGauge("storage.damage.known", metric.WithUnit("{place}"),
		metric.WithDescription("Damaged places of log and queues that are known and not repaired, by kind: record, unit."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			k := b.Known()
			o.Observe(k.Records, metric.WithAttributes(attribute.String("kind", "record")))
			o.Observe(k.Units, metric.WithAttributes(attribute.String("kind", "unit")))
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("make instrument: %w", err)
	}
	return b, nil
}

// Record enters a stretch of the log that begins with no sound record; a sound one begins at to.
func (b *Book) Record(by string, from, to int64) { b.enter(Place{From: from, To: to, By: by}) }

// Found enters what a scrub has found.
func (b *Book) Found(f check.Finding) {
	p := Place{From: f.Offset, To: f.End, By: ByScrub}
	if f.Kind != check.BadRecord {
		p.Unit = f.Place()
	}
	b.enter(p)
}

func (b *Book) enter(p Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key{p.From, p.Unit}
	if old, known := b.places[k]; known || len(b.places) < most {
		if p.at = b.now(); known {
			p.By = old.By
		}
		b.places[k] = p
		return
	}
	b.more.count(p)
}

func (k *Known) count(p Place) {
	if p.Unit == "" {
		k.Records++
	} else {
		k.Units++
	}
}

// Sound strikes out what lies in [from, to) and was not found since then: all of it was looked at.
func (b *Book) Sound(from, to int64, since time.Time) {
	b.strike(func(p Place) bool { return p.From >= from && p.From < to && p.at.Before(since) })
}

// Repaired strikes out what lies in [from, to).
func (b *Book) Repaired(from, to int64) {
	b.strike(func(p Place) bool { return p.From >= from && p.From < to })
}

// Cut strikes out what lies in [from, ...): the log ends at from.
func (b *Book) Cut(from int64) { b.strike(func(p Place) bool { return p.From >= from }) }

func (b *Book) strike(gone func(Place) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, p := range b.places {
		if gone(p) {
			delete(b.places, k)
		}
	}
	if len(b.places) < most/2 {
		b.more = Known{} // who still knows of them finds room now
	}
}

// Known returns what is in the book.
func (b *Book) Known() Known {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := Known{Records: b.more.Records, Units: b.more.Units}
	for _, p := range b.places {
		k.count(p)
		k.Places = append(k.Places, p)
	}
	slices.SortFunc(k.Places, func(a, b Place) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Unit, b.Unit)) })
	if n := len(k.Places); n > 2*ends {
		k.Places = slices.Delete(k.Places, ends, n-ends)
	}
	return k
}
