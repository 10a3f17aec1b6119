package commitlog

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Names in the folder of a storage, as RocketMQ has them; newFile is Tandem's.
const (
	logDir         = "commitlog"
	checkpointFile = "checkpoint"
	abortFile      = "abort"
	lockFile       = "lock"
	newFile        = "commitlog.new"
)

const (
	defaultFileSize = 1 << 30
	pageSize        = 4096 // unit of FlushLeastPages
	checkpointEvery = time.Second
	maxStale        = 1000 // ms by which a batch's clock may be older than that of the one before
)

// Options of a Log; zero values get the defaults that are named.
type Options struct {
	// FileSize is the length of each file, bytes. 0: that of the files in the folder, else 1 GiB. Another size than that of
	// the files is an error.
	FileSize int64
	// SyncFlush makes each group of appends durable at once and writes them by pwrite; without it the three intervals below
	// hold (500 ms, 4 pages, 10 s).
	SyncFlush             bool
	FlushInterval         time.Duration // between looks at what is not flushed
	FlushLeastPages       int64         // pages of 4 KiB that are worth a flush
	FlushThoroughInterval time.Duration // after which any byte is
	// Ahead is the first value of SetAhead.
	Ahead bool
	// Grace bounds the wait for readers' leases at a cut (10 s).
	Grace time.Duration
	// BootID tells this run of the machine from others; it goes into the abort file. Empty: no crash counts as one of the
	// process alone.
	BootID string
	Now    func() time.Time
	Log    *slog.Logger
	Meter  metric.Meter
}

func (o Options) withDefaults() Options {
	if o.FlushInterval == 0 {
		o.FlushInterval = 500 * time.Millisecond
	}
	if o.FlushLeastPages == 0 {
		o.FlushLeastPages = 4
	}
	if o.FlushThoroughInterval == 0 {
		o.FlushThoroughInterval = 10 * time.Second
	}
	if o.Grace == 0 {
		o.Grace = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "commitlog")
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	return o
}
