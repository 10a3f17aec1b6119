package entrylog

import (
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/push"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/meta"
)

// Names in the folder of a node, as DLedger has them; those below tandem/ are Tandem's.
const (
	dataDir   = "data"
	indexDir  = "index"
	lockFile  = meta.Dir + "/lock"
	newData   = meta.Dir + "/data.new"
	newIndex  = meta.Dir + "/index.new"
	minFile   = 4 << 10
	slack     = 4 << 10 // of a reservation, for the records that close files
	maxOffset = 1 << 62

	defaultDataSize  = 1 << 30
	defaultIndexSize = 5 << 20 * entry.UnitSize
	defaultGrace     = 2 * time.Second
)

// Options of a Log; zero values get the defaults that are named.
type Options struct {
	// DataFileSize and IndexFileSize are the lengths of the files, bytes. 0: those of the files in the folder, else DLedger's
	// 1 GiB and 160 MiB. Another size than that of the files is an error.
	DataFileSize, IndexFileSize int64
	// Async says that entries are acknowledged before they are durable (flush: async). A node whose machine went down in
	// this mode has no vote until it has caught up.
	Async bool
	// BootID tells this run of the machine from others. Empty: every crash counts as one of the machine.
	BootID string
	// Owner is who takes the folder; meta.ErrOwner where it is another's. nil: whoever had it last, for tests.
	Owner *meta.Owner
	// MaxEntry bounds an entry, header included, bytes (4 MiB, which is also the most).
	MaxEntry int
	// Verify reads the whole log at Open, not only what was written since the last checkpoint.
	Verify bool
	// Grace bounds the wait for readers at a cut (2 s).
	Grace time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxEntry == 0 {
		o.MaxEntry = entry.MaxSize
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	return o
}

// Log is the log of one node. See the package for who may call what.
type Log struct {
	fsys vfs.FS
	root string
	o    Options
	lock io.Closer
	data *mappedfile.Queue
	idx  *mappedfile.Queue

	fault  atomic.Pointer[error]
	closed atomic.Bool

	// What readers see: entries first to last. gen grows with each cut, before the first byte goes.
	first, last atomic.Int64
	gen         atomic.Uint64

	keepMu sync.Mutex // one checkpoint, cut or purge at a time; before syncMu
	syncMu sync.Mutex // one sync or cut at a time; before mu
	mu     sync.Mutex // guards what follows
	end    meta.Point // behind the last entry; Pos -1: an empty log that may begin anywhere
	synced meta.Point // durable up to here
	known  meta.Log   // as in tandem/log
	inUse  bool       // known.Open stands in tandem/log
	found  bool       // tandem/log was there at Open
	hard   raft.HardState

	commitMu  sync.Mutex
	committed raft.Index // as last told by Checkpoint

	// Reused by Append.
	pieces [][]byte
	units  []byte
	blanks [][entry.BlankSize]byte
	noOps  [][entry.HeaderSize]byte
}

var _ push.Log = (*Log)(nil)

// Recovery is what Open found and did.
type Recovery struct {
	consensus.Start
	Scanned  int64  // bytes of entries that were read
	CutBytes bool   // something stood behind the last entry, and was zeroed
	Torn     error  // why the entry behind the last one was not taken; nil: there was none
	Clean    bool   // the last one who had the log closed it
	Java     bool   // DLedger wrote it, or has used it since Tandem did
	NoVote   string // why Voter is false although the node had a vote; empty otherwise
	Rebuilt  int    // units of the index that were written
	Foreign  []string
}

// First returns the index of the first entry, Last that of the last one; First is Last+1 when there is none.
func (l *Log) First() raft.Index { return raft.Index(l.first.Load()) }

// Last returns the index of the last entry, durable or not.
func (l *Log) Last() raft.Index { return raft.Index(l.last.Load()) }

// Cuts counts the cuts of this life of the log. Who read it before entries were named, and finds it the same after View, has
// the entries that were meant.
func (l *Log) Cuts() uint64 { return l.gen.Load() }

// Synced returns the index of the last entry that is durable.
func (l *Log) Synced() raft.Index {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced.Index
}

// End returns the offset behind the last entry, bytes.
func (l *Log) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.end.Pos)
}

// FileSizes returns the lengths of a data and of an index file, bytes.
func (l *Log) FileSizes() (data, index int64) { return l.data.FileSize(), l.idx.FileSize() }

// Err returns the fault that ended the log, nil while it works.
func (l *Log) Err() error {
	if err := l.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// fail ends the log.
func (l *Log) fail(cause error) error {
	err := error(ErrFaulted.Wrap(cause))
	l.fault.CompareAndSwap(nil, &err)
	return l.Err()
}

// usable says why nothing can be written, nil if it can.
func (l *Log) usable() error {
	if err := l.Err(); err != nil {
		return err
	}
	if l.closed.Load() {
		return ErrClosed
	}
	return nil
}

func path(root, name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
