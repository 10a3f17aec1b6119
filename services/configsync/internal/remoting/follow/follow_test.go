package follow

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// master answers over net.Pipe.
type master struct {
	t testing.TB

	mu     sync.Mutex
	begin  time.Time
	down   bool
	conns  int
	asked  []asked
	answer func(conn io.Writer, req *frame.Command) // nil: the right one
}

type asked struct {
	at   time.Duration
	code int32
}

func (m *master) dial(context.Context, string, string) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return nil, errors.New("refused")
	}
	here, there := net.Pipe()
	m.conns++
	go m.serve(here)
	return there, nil
}

func (m *master) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, _, err := remoting.ReadHeader(in, 1<<20)
		if err != nil {
			return
		}
		m.mu.Lock()
		m.asked = append(m.asked, asked{time.Since(m.begin), req.Code})
		answer := m.answer
		m.mu.Unlock()
		if answer == nil {
			answer = right
		}
		answer(conn, req)
	}
}

func (m *master) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *master) take() []asked {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.asked
	m.asked = nil
	return out
}

func reply(conn io.Writer, req *frame.Command, code int32, body string) {
	c := &frame.Command{Code: code, Flag: frame.FlagResponse, Opaque: req.Opaque, Remark: "as told"}
	_, _ = conn.Write(append(frame.Append(nil, c, len(body)), body...))
}

func kindOf(code int32) entry.Kind {
	for k, c := range codes {
		if c == code {
			return k
		}
	}
	return 0
}

// text is a table of one entry.
func text(k entry.Kind) string {
	return map[entry.Kind]string{
		entry.Topics:          `{"dataVersion":{"counter":1,"timestamp":9},"topicConfigTable":{"T":{"topicName":"T"}}}`,
		entry.ConsumerOffsets: `{"offsetTable":{"T@G":{0:5}}}`,
		entry.DelayOffsets:    `{"offsetTable":{1:7}}`,
		entry.Groups:          `{"dataVersion":{"counter":1,"timestamp":9},"subscriptionGroupTable":{"G":{"groupName":"G"}}}`,
	}[k]
}

func right(conn io.Writer, req *frame.Command) { reply(conn, req, 0, text(kindOf(req.Code))) }

// own are a node's tables.
type own struct {
	mu    sync.Mutex
	t     map[entry.Kind]*table.Table
	fails error
}

func newOwn() *own {
	o := &own{t: map[entry.Kind]*table.Table{}}
	for _, k := range entry.Kinds() {
		o.t[k] = table.New(k)
	}
	return o
}

func (o *own) FollowJava(_ context.Context, java *table.Table, opts table.JavaOptions) (table.Report, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fails != nil {
		return table.Report{}, o.fails
	}
	next, report, err := table.FollowJava(o.t[java.Kind()], java, opts, 1)
	if err == nil {
		o.t[java.Kind()] = next
	}
	return report, err
}

func (o *own) get(k entry.Kind) *table.Table {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.t[k]
}

// run follows in a bubble, a master that was prepared before; stop ends it and returns how it ended.
func run(t *testing.T, o Options, test func(t *testing.T, f *Follower, m *master, tables *own, stop func() error), prepare ...func(m *master)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m, tables := &master{t: t, begin: time.Now()}, newOwn()
		o.Address, o.MaxFrame, o.Dial = "java:10911", 1<<20, m.dial
		for _, p := range prepare {
			p(m)
		}
		f := New(o, tables)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Follow(ctx) }()
		stop := sync.OnceValue(func() error {
			cancel()
			err := <-done
			synctest.Wait()
			return err
		})
		test(t, f, m, tables, stop)
		if err := stop(); err != nil && o.Permit == nil && tables.fails == nil {
			t.Error(err)
		}
	})
}

// TestRounds: the four codes in the order of RocketMQ's slaves, on a connection a round, every interval; Round asks at once.
func TestRounds(t *testing.T) {
	run(t, Options{}, func(t *testing.T, f *Follower, m *master, tables *own, stop func() error) {
		synctest.Wait()
		<-time.After(2*time.Minute + time.Second)
		got := m.take()
		if len(got) != 12 || m.conns != 3 {
			t.Fatalf("%v on %d connections", got, m.conns)
		}
		for i, a := range got {
			if a.code != []int32{21, 43, 45, 201}[i%4] || a.at != time.Duration(i/4)*time.Minute {
				t.Errorf("%d: %v", i, a)
			}
		}
		for _, k := range entry.Kinds() {
			st := f.State(k)
			if tables.get(k).Len() != 1 || !st.InSync || st.LastError != nil || st.Rounds["full"] != 1 || st.Rounds["unchanged"] != 2 || len(st.Refused) > 0 {
				t.Errorf("%v: %+v", k, st)
			}
			if there, err := f.Pull(t.Context(), k); err != nil || there.Len() != 1 {
				t.Errorf("%v: pulled %v", k, err)
			}
		}
		m.take()
		if err := f.Round(t.Context()); err != nil || len(m.take()) != 4 || f.Master() != "java:10911" {
			t.Errorf("a round now: %v", err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := f.Round(t.Context()); !errors.Is(err, errIdle) || f.Master() != "" {
			t.Errorf("a round of who does not follow: %v", err)
		}
	})
}

// TestEachKindIsByItself: one that is not answered costs its time and the connection, and no other kind.
func TestEachKindIsByItself(t *testing.T) {
	run(t, Options{Timeout: 3 * time.Second}, func(t *testing.T, f *Follower, m *master, tables *own, _ func() error) {
		synctest.Wait()
		<-time.After(4 * time.Second)
		for _, k := range entry.Kinds() {
			want := 1
			if k == entry.ConsumerOffsets {
				want = 0
			}
			st := f.State(k)
			if tables.get(k).Len() != want || st.InSync != (want == 1) || want == 0 && !errors.Is(st.LastError, remoting.ErrTimeout) {
				t.Errorf("%v: %+v", k, st)
			}
		}
		if f.Master() == "" || m.conns != 2 {
			t.Errorf("%d connections, master %q", m.conns, f.Master())
		}
		m.set(func() { m.answer = nil })
		<-time.After(time.Minute)
		if st := f.State(entry.ConsumerOffsets); tables.get(entry.ConsumerOffsets).Len() != 1 || st.LastError != nil || st.Refused["REMOTING_TIMEOUT"] == 0 {
			t.Errorf("%+v", st)
		}
	}, func(m *master) {
		m.answer = func(conn io.Writer, req *frame.Command) {
			if req.Code != 43 {
				right(conn, req)
			}
		}
	})
}

// TestDown: a master that is away is tried with backoff, and followed once it is back.
func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, tables := &master{t: t, begin: time.Now(), down: true}, newOwn()
		f := New(Options{Address: "java:10911", MaxFrame: 1 << 20, Dial: m.dial}, tables)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Follow(ctx) }()
		<-time.After(time.Hour)
		st := f.State(entry.Topics)
		if n := st.Refused["REMOTING_UNREACHABLE"]; n < 60 || n > 150 || st.InSync || f.Master() != "" {
			t.Errorf("%+v", st)
		}
		m.set(func() { m.down = false })
		<-time.After(time.Minute)
		if st := f.State(entry.Topics); !st.InSync || st.LastError != nil || f.Master() == "" {
			t.Errorf("%+v", st)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPermit: nobody is asked before it is allowed; a reign ends it for good.
func TestPermit(t *testing.T) {
	var mu sync.Mutex
	permit := errors.New("not heard yet")
	run(t, Options{Permit: func() error {
		mu.Lock()
		defer mu.Unlock()
		return permit
	}}, func(t *testing.T, f *Follower, m *master, tables *own, stop func() error) {
		<-time.After(time.Hour)
		if got := m.take(); len(got) > 0 || f.State(entry.Groups).InSync {
			t.Fatalf("%v", got)
		}
		mu.Lock()
		permit = nil
		mu.Unlock()
		<-time.After(2 * time.Minute)
		if !f.State(entry.Groups).InSync || len(m.take()) == 0 {
			t.Errorf("%+v", f.State(entry.Groups))
		}
		mu.Lock()
		permit = ErrReign
		mu.Unlock()
		<-time.After(2 * time.Minute)
		m.take()
		<-time.After(time.Hour)
		if got := m.take(); len(got) > 0 {
			t.Errorf("after the reign began: %v", got)
		}
		if err := stop(); !errors.Is(err, ErrReign) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestAFaultedRegistry ends it.
func TestAFaultedRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, tables := &master{t: t, begin: time.Now()}, newOwn()
		tables.fails = errdefs.New(errdefs.Unavailable, "REGISTRY_FAULTED", "x")
		f := New(Options{Address: "java:10911", MaxFrame: 1 << 20, Dial: m.dial}, tables)
		if err := f.Follow(t.Context()); !fatal(err) {
			t.Error(err)
		}
	})
}

// TestT15_LowerOffsets are told once, counted each round, and taken only when configured.
func TestT15_LowerOffsets(t *testing.T) {
	for _, take := range []bool{false, true} {
		run(t, Options{TakeLower: take}, func(t *testing.T, f *Follower, m *master, tables *own, _ func() error) {
			synctest.Wait()
			m.set(func() {
				m.answer = func(conn io.Writer, req *frame.Command) {
					switch req.Code {
					case 43:
						reply(conn, req, 0, `{"offsetTable":{"T@G":{0:2,1:1}}}`)
					case 45:
						reply(conn, req, 0, `{"offsetTable":{1:3}}`)
					default:
						right(conn, req)
					}
				}
			})
			<-time.After(2*time.Minute + time.Second)
			offset, _ := tables.get(entry.ConsumerOffsets).Offset("T", "G", 0)
			delay, _ := tables.get(entry.DelayOffsets).Delay(1)
			other, _ := tables.get(entry.ConsumerOffsets).Offset("T", "G", 1)
			lower, refused := f.Lower(entry.ConsumerOffsets), f.State(entry.ConsumerOffsets).Refused[ErrLower.Reason]
			switch {
			case other.Offset != 1:
				t.Errorf("the new queue's offset: %v", other)
			case take && (offset.Offset != 2 || offset.Epoch == 0 || delay.Offset != 3 || lower != 0 || refused != 0):
				t.Errorf("taken: %v, %v, %d, %d", offset, delay, lower, refused)
			case !take && (offset.Offset != 5 || delay.Offset != 7 || lower != 1 || refused != 2):
				t.Errorf("not taken: %v, %v, %d, %d", offset, delay, lower, refused)
			}
			if there, err := f.Pull(t.Context(), entry.ConsumerOffsets); !take {
				n := len(slices.Collect(table.Diff(tables.get(entry.ConsumerOffsets), there)))
				if err != nil || n != 1 {
					t.Errorf("Diff shows %d, %v", n, err)
				}
			}
		})
	}
}
