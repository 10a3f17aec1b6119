package role_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role"
)

var errDead = errors.New("the process has died")

const fileSize = 1 << 20

// memLog is a log in memory. A record is any run of bytes; '|' ends one.
type memLog struct {
	mu                         sync.Mutex
	first                      int64
	data                       []byte
	size                       int64
	written, flushed, readable *watermark.Mark
	kept                       []string // "from-to-epoch bytes"
	syncFlush                  bool
	ahead                      bool
	whole                      int // calls of MarkWhole
	step                       func(name string) error
	steps                      []string
}

func newLog(first int64, data string) *memLog {
	l := &memLog{first: first, data: []byte(data), size: fileSize}
	l.marks(l.end(), l.end(), l.end())
	return l
}

func (l *memLog) marks(w, f, r int64) {
	for _, m := range []*watermark.Mark{l.written, l.flushed, l.readable} {
		if m != nil {
			m.Close(watermark.ErrTruncated)
		}
	}
	l.written, l.flushed, l.readable = watermark.New(w), watermark.New(f), watermark.New(r)
}

func (l *memLog) end() int64 { return l.first + int64(len(l.data)) }

func (l *memLog) get(m **watermark.Mark) *watermark.Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *m
}

func (l *memLog) Written() *watermark.Mark  { return l.get(&l.written) }
func (l *memLog) Flushed() *watermark.Mark  { return l.get(&l.flushed) }
func (l *memLog) Readable() *watermark.Mark { return l.get(&l.readable) }

func (l *memLog) FileSize() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

func (l *memLog) FirstOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *memLog) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end()
}

func (l *memLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.data)
}

// do is one step that a test may have fail; l.mu is held.
func (l *memLog) do(format string, args ...any) error {
	name := fmt.Sprintf(format, args...)
	if l.step != nil {
		if err := l.step(name); err != nil {
			return err
		}
	}
	l.steps = append(l.steps, name)
	return nil
}

func (l *memLog) append(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = append(l.data, text...)
	if l.syncFlush {
		l.flushed.Advance(l.end())
	}
	l.written.Advance(l.end())
}

// change rewrites the bytes of a log whose process is down.
func (l *memLog) change(f func(b []byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.data = f(l.data)
	l.marks(l.end(), l.end(), l.end())
}

func (l *memLog) View(offset int64, limit int) ([]byte, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset < l.first || offset > l.end() {
		return nil, nil, fmt.Errorf("offset %d outside of [%d, %d]", offset, l.first, l.end())
	}
	b := l.data[offset-l.first:]
	return append([]byte{}, b[:min(limit, len(b))]...), func() {}, nil
}

// RecordStart takes every byte for a record.
func (l *memLog) RecordStart(offset int64) (int64, error) { return offset, nil }

func (l *memLog) Ready() error { return nil }

func (l *memLog) WholeEnd() (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.data)
	for n > 0 && l.data[n-1] != '|' {
		n--
	}
	return l.first + int64(n), nil
}

func (l *memLog) FlushNow(context.Context) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.do("flush"); err != nil {
		return 0, err
	}
	l.flushed.Advance(l.end())
	return l.end(), nil
}

func (l *memLog) MarkWhole() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.whole++
	return nil
}

func (l *memLog) SetAhead(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ahead = on
}

func (l *memLog) SetReadable(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, l.end())
	if l.syncFlush {
		n = min(n, l.flushed.Load())
	}
	l.readable.Advance(n)
}

func (l *memLog) Rollback(to, epoch, keep int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.do("rollback %d", to); err != nil {
		return err
	}
	if l.end()-to > keep {
		return errdefs.New(errdefs.ResourceExhausted, "ROLLBACK_FULL", "does not fit")
	}
	l.kept = append(l.kept, fmt.Sprintf("%d-%d-%d %s", to, l.end(), epoch, l.data[to-l.first:]))
	return nil
}

func (l *memLog) Truncate(to int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to < l.first || to > l.end() {
		return fmt.Errorf("truncate to %d outside of [%d, %d]", to, l.first, l.end())
	}
	if err := l.do("truncate %d", to); err != nil {
		return err
	}
	l.data = l.data[:to-l.first]
	l.marks(to, to, min(to, l.readable.Load()))
	return nil
}

func (l *memLog) Reset(start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.do("reset %d", start); err != nil {
		return err
	}
	l.first, l.data = start, nil
	l.marks(start, start, start)
	return nil
}

func (l *memLog) Adopt(size int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.data) > 0 && size != l.size {
		return errors.New("not empty")
	}
	l.size = size
	return nil
}

// memLinks is the master's side of the links.
type memLinks struct {
	log *memLog

	mu      sync.Mutex
	open    bool
	start   int64
	tokens  map[role.Token]*memLink
	live    map[int64]*memLink
	acked   map[int]*watermark.Mark
	changes *watermark.Mark
	next    byte
	shuts   []error
	onShut  func(error)
	full    bool
}

type memLink struct {
	role.Grant
	acked  int64
	ctx    context.Context //nolint:containedctx // ends the link
	cancel context.CancelCauseFunc
	gone   chan struct{}
	once   sync.Once
}

func (k *memLink) end(reason error) {
	k.once.Do(func() { k.cancel(reason); close(k.gone) })
}

func newLinks(l *memLog) *memLinks {
	return &memLinks{
		log: l, tokens: map[role.Token]*memLink{}, live: map[int64]*memLink{}, acked: map[int]*watermark.Mark{},
		changes: watermark.New(0),
	}
}

func (s *memLinks) Prepare(ctx context.Context) error { return ctx.Err() }

func (s *memLinks) Open(ownStart int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open, s.start = true, ownStart
	s.acked = map[int]*watermark.Mark{}
}

func (s *memLinks) Shut(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
	s.shuts = append(s.shuts, reason)
	if s.onShut != nil {
		s.onShut(reason)
	}
	for _, m := range s.acked {
		m.Close(reason)
	}
	for t, k := range s.tokens {
		k.end(reason)
		delete(s.tokens, t)
	}
	for id, k := range s.live {
		k.end(reason)
		delete(s.live, id)
	}
	s.changes.Advance(s.changes.Load() + 1)
}

func (s *memLinks) Revoke(id int64, reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.live[id]; k != nil {
		k.end(reason)
		delete(s.live, id)
		s.changes.Advance(s.changes.Load() + 1)
	}
}

func (s *memLinks) Grant(g role.Grant) (role.Token, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return role.Token{}, nil, errdefs.New(errdefs.ResourceExhausted, "TOO_MANY_SLAVES", "full").WithRemedy("raise ha.maxSlaves")
	}
	s.next++
	t := role.Token{0: s.next}
	k := &memLink{Grant: g, acked: -1, gone: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	s.tokens[t] = k
	return t, k.gone, nil
}

func (s *memLinks) take(t role.Token) *memLink {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.tokens[t]
	delete(s.tokens, t)
	if k != nil {
		s.live[k.NodeID] = k
	}
	return k
}

func (s *memLinks) report(k *memLink, off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[k.NodeID] != k {
		return
	}
	if k.acked < 0 {
		defer func() { s.changes.Advance(s.changes.Load() + 1) }()
	}
	k.acked = off
	for n, m := range s.acked {
		best := int64(0)
		for _, a := range s.live {
			count := 0
			for _, b := range s.live {
				if b.acked >= a.acked {
					count++
				}
			}
			if count >= n && a.acked >= s.start {
				best = max(best, a.acked)
			}
		}
		m.Advance(best)
	}
}

func (s *memLinks) Acked(k int) *watermark.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.acked[k]
	if m == nil {
		m = watermark.New(0)
		s.acked[k] = m
	}
	return m
}

func (s *memLinks) InSync() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, k := range s.live {
		if k.acked >= 0 {
			n++
		}
	}
	return n
}

func (s *memLinks) InSyncChanged() *watermark.Mark { return s.changes }

// Stream is the raw connection: it copies from the upstream's log until an end.
func (n *node) Stream(ctx context.Context, a role.StreamArgs) error {
	n.mu.Lock()
	n.args = append(n.args, a)
	n.mu.Unlock()
	if a.Token == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	u, err := n.call(a.Addr)
	if err != nil {
		return err
	}
	k := u.links.take(*a.Token)
	if k == nil {
		return errors.New("bad token")
	}
	defer u.links.Revoke(k.NodeID, io.EOF)
	if k.Start != n.log.End() {
		return fmt.Errorf("granted from %d, own end %d", k.Start, n.log.End())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(context.Cause(k.ctx)) })()
	for {
		u.links.report(k, n.log.End())
		w := u.log.Written()
		if err := w.Wait(ctx, n.log.End()+1); err != nil {
			return err
		}
		b, release, err := u.log.View(n.log.End(), 5)
		if err != nil {
			return err
		}
		if n.dead.Load() || ctx.Err() != nil {
			return errDead
		}
		n.log.append(string(b))
		release()
	}
}

// Promise, Follow and RangeChecksum are what rpc does over gRPC.
func (n *node) Promise(ctx context.Context, addr string, p epoch.PromiseRequest) (epoch.Heard, error) {
	u, err := n.call(addr)
	if err != nil {
		return epoch.Heard{}, err
	}
	return u.m.OnPromise(ctx, p)
}

func (n *node) RangeChecksum(ctx context.Context, addr string, from, to, stretch int64) ([]uint32, int64, error) {
	u, err := n.call(addr)
	if err != nil {
		return nil, 0, err
	}
	return u.m.OnRangeChecksum(ctx, from, to, stretch)
}

// Drain holds the call open as a gRPC stream does.
func (n *node) Drain(ctx context.Context, addr string, r epoch.DrainRequest) (int64, func(), error) {
	u, err := n.call(addr)
	if err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(u.ctx, cancel)
	ends, done := make(chan int64, 1), make(chan error, 1)
	go func() {
		defer stop()
		done <- u.m.OnDrain(ctx, r, func(end int64) error { ends <- end; return nil })
	}()
	select {
	case end := <-ends:
		return end, cancel, nil
	case err := <-done:
		cancel()
		return 0, nil, err
	}
}

type control struct {
	answers chan epoch.FollowAnswer
	ctx     context.Context //nolint:containedctx // of the call
	cancel  context.CancelFunc
	done    chan struct{}
	err     error
}

func (n *node) Follow(ctx context.Context, addr string, r epoch.FollowRequest) (role.FollowStream, error) {
	u, err := n.call(addr)
	if err != nil {
		return nil, err
	}
	s := &control{answers: make(chan epoch.FollowAnswer), done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	stop := context.AfterFunc(u.ctx, s.cancel)
	go func() {
		defer close(s.done)
		defer stop()
		s.err = u.m.OnFollow(s.ctx, r, func(a epoch.FollowAnswer) error {
			select {
			case s.answers <- a:
				return nil
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		})
	}()
	return s, nil
}

func (s *control) Recv() (epoch.FollowAnswer, error) {
	select {
	case a := <-s.answers:
		return a, nil
	case <-s.done:
		return epoch.FollowAnswer{}, errors.Join(io.EOF, s.err)
	case <-s.ctx.Done():
		return epoch.FollowAnswer{}, s.ctx.Err()
	}
}

func (s *control) Close() { s.cancel() }
