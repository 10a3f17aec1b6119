package serve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// tables are the node's, and its role.
type tables struct {
	mu     sync.Mutex
	t      map[entry.Kind]*table.Table
	broken map[entry.Kind]error
	slave  bool
}

// set changes them.
func (f *tables) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *tables) Snapshot(k entry.Kind) *table.Table {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.t[k]
}

func (f *tables) Whole(k entry.Kind) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken[k]
}

func (f *tables) Reign() (int64, <-chan struct{}, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.slave {
		return 0, nil, errors.New("a slave")
	}
	return 1, nil, nil
}

func decode(t testing.TB, k entry.Kind, text string) *table.Table {
	t.Helper()
	out, err := jsonfile.Decode(k, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newTables(t testing.TB) *tables {
	return &tables{broken: map[entry.Kind]error{}, t: map[entry.Kind]*table.Table{
		entry.Topics: decode(t, entry.Topics, `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"topicConfigTable":{"TopicA":{"attributes":{},"order":false,"perm":6,`+
			`"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"TopicA","topicSysFlag":0,"writeQueueNums":4}}}`),
		entry.ConsumerOffsets: decode(t, entry.ConsumerOffsets, `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"offsetTable":{"TopicA@G":{0:5,1:6}}}`),
		entry.DelayOffsets:    decode(t, entry.DelayOffsets, `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"offsetTable":{1:10,2:3}}`),
		entry.Groups:          decode(t, entry.Groups, `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"forbiddenTable":{},"subscriptionGroupTable":{"G":{"groupName":"G"}}}`),
	}}
}

// start serves on loopback; the reader has what was counted.
func start(t testing.TB, f *tables, o Options) (*Server, string, *metric.ManualReader) {
	t.Helper()
	reader := metric.NewManualReader()
	o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	s, err := New(o, f, f)
	if err != nil {
		t.Fatal(err)
	}
	var lns []net.Listener
	for range 2 {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns = append(lns, ln)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, lns...) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	})
	return s, lns[0].Addr().String(), reader
}

// counted returns a counter's sum over the points that have value among their attributes.
func counted(t testing.TB, r *metric.ManualReader, name, value string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "tandem.configsync.remoting."+name {
				continue
			}
			for _, p := range sum.DataPoints {
				for _, a := range p.Attributes.ToSlice() {
					if a.Value.String() == value {
						n += p.Value
					}
				}
			}
		}
	}
	return n
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: testkit.Patience}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask sends a request and reads its answer.
func ask(t testing.TB, conn net.Conn, req *frame.Command, body string) (*frame.Command, string) {
	t.Helper()
	if _, err := conn.Write(append(frame.Append(nil, req, len(body)), body...)); err != nil {
		t.Fatal(err)
	}
	return next(t, conn)
}

func next(t testing.TB, conn io.Reader) (*frame.Command, string) {
	t.Helper()
	c, size, err := remoting.ReadHeader(conn, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(conn, b); err != nil {
		t.Fatal(err)
	}
	return c, string(b)
}

// TestACycle: what a 5.3.3 slave asks in one cycle, in its order, by each header and from each language.
func TestACycle(t *testing.T) {
	f := newTables(t)
	_, addr, _ := start(t, f, Options{
		BrokerAddr: "here:10931", HAServerAddr: "here:10912", Flushed: func(context.Context) (int64, error) { return 777, nil },
	})
	conn := dial(t, addr)
	opaque := int32(-3)
	for _, e := range []frame.Encoding{frame.JSON, frame.Binary} {
		for _, l := range []frame.Language{frame.Java, frame.Go, 200} {
			for code, want := range map[int32]string{
				21:  `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"topicConfigTable":{"TopicA":{"attributes":{},`,
				43:  `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"offsetTable":{"TopicA@G":{0:5,1:6}}}`,
				45:  `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"offsetTable":{1:10,2:3}}`,
				201: `{"dataVersion":{"counter":3,"stateVersion":1,"timestamp":9},"forbiddenTable":{},"subscriptionGroupTable":{"G":{`,
				402: `{"messageRequestModeMap":{}}`,
				906: ``,
			} {
				opaque++
				resp, body := ask(t, conn, &frame.Command{Encoding: e, Code: code, Language: l, Opaque: opaque, Version: 479}, "")
				if resp.Code != 0 || resp.Opaque != opaque || resp.Flag != frame.FlagResponse || resp.Encoding != e || !strings.HasPrefix(body, want) {
					t.Errorf("%d by %d: %+v, %s", code, e, resp, body)
				}
				if code == 906 && fmt.Sprint(resp.Fields) != "map[masterAddress:here:10931 masterFlushOffset:777 masterHaAddress:here:10912]" {
					t.Errorf("%v", resp.Fields)
				}
			}
			for _, code := range []int32{60, 61, 10, 105, -1, 30000, 22} {
				opaque++
				resp, body := ask(t, conn, &frame.Command{Encoding: e, Code: code, Language: l, Opaque: opaque}, "some body")
				if resp.Code != remoting.CodeNotSupported || resp.Opaque != opaque || resp.Remark == "" || body != "" {
					t.Errorf("%d by %d: %+v, %s", code, e, resp, body)
				}
			}
		}
	}
}

// TestT14_NothingButWholeTables: a Java slave deletes what an answer does not have. So a table that is empty or broken, or any
// table of a node that does not lead, is answered with an error.
func TestT14_NothingButWholeTables(t *testing.T) {
	f := newTables(t)
	_, addr, reader := start(t, f, Options{Flushed: func(context.Context) (int64, error) { return 0, errors.New("no storage") }})
	conn := dial(t, addr)
	refused := func(why string, codes ...int32) {
		t.Helper()
		for _, code := range codes {
			resp, body := ask(t, conn, &frame.Command{Code: code}, "")
			if resp.Code != remoting.SystemError || body != "" || len(resp.Fields) > 0 || !strings.Contains(resp.Remark, why) {
				t.Errorf("%d: %+v, %q", code, resp, body)
			}
		}
	}
	refused("no storage", 906)
	f.set(func() { f.slave = true })
	refused("NOT_MASTER", 21, 43, 45, 201, 402, 906)
	f.set(func() {
		f.slave = false
		for _, k := range entry.Kinds() {
			f.broken[k] = errors.New("TABLE_BROKEN")
		}
	})
	refused("TABLE_BROKEN", 21, 43, 45, 201)
	f.set(func() {
		clear(f.broken)
		for _, k := range entry.Kinds() {
			f.t[k] = table.New(k)
		}
	})
	refused("EMPTY_TABLE", 21, 45, 201)
	resp, body := ask(t, conn, &frame.Command{Code: 43}, "")
	if resp.Code != 0 || body != `{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"offsetTable":{}}` {
		t.Errorf("no offsets, which delete none: %+v, %s", resp, body)
	}
	if n := counted(t, reader, "answers", "1"); n != 14 {
		t.Errorf("%d errors are counted", n)
	}
	large := decode(t, entry.Topics, `{"topicConfigTable":{"T":{}},"x":"`+strings.Repeat("x", 70000)+`"}`)
	f.set(func() { f.t[entry.Topics] = large })
	_, small, _ := start(t, f, Options{MaxFrame: 64 << 10})
	conn = dial(t, small)
	refused("TABLE_TOO_LARGE", 21)
}

// TestBadFrames: each is closed, counted by its reason, and costs nothing that its sender claims.
func TestBadFrames(t *testing.T) {
	_, addr, reader := start(t, newTables(t), Options{})
	prefix := func(length, second uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, length), second)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := map[string]int64{}
	for name, x := range map[string]struct {
		b      []byte
		reason string
	}{
		"TLS":                   {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, "FRAME_LENGTH"},
		"HTTP":                  {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "FRAME_LENGTH"},
		"gRPC":                  {[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "FRAME_LENGTH"},
		"2 GiB":                 {prefix(1<<31-1, 100), "FRAME_LENGTH"},
		"negative":              {prefix(1<<32-1, 100), "FRAME_LENGTH"},
		"zero":                  {make([]byte, 64), "FRAME_LENGTH"},
		"a header of 16 MiB":    {prefix(16<<20, 1<<24-1), "FRAME_LENGTH"},
		"a header beyond":       {prefix(10, 7), "FRAME_LENGTH"},
		"type 9":                {append(prefix(104, 9<<24|100), make([]byte, 100)...), "HEADER_TYPE"},
		"no header":             {prefix(4, 0), "BROKEN_HEADER"},
		"garbage":               {append(prefix(8, 4), "abcd"...), "BROKEN_HEADER"},
		"binary, cut lengths":   {append(prefix(14, 1<<24|10), make([]byte, 10)...), "BROKEN_HEADER"},
		"the end in the prefix": {prefix(100, 50)[:5], "CUT"},
		"the end in the header": {append(prefix(100, 50), "{"...), "CUT"},
		"the end in the body":   {append(frame.Append(nil, &frame.Command{Code: 21}, 1<<20), "some"...), "CUT"},
	} {
		n[x.reason]++
		conn := dial(t, addr).(*net.TCPConn)
		if _, err := conn.Write(x.b); err != nil {
			t.Fatal(err)
		}
		if x.reason == "CUT" {
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: answered with %q, %v", name, b, err)
		}
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	for reason, want := range n {
		if got := counted(t, reader, "closed", reason); got != want {
			t.Errorf("%s: %d of %d are counted", reason, got, want)
		}
	}
}

// TestWhatIsNotAnswered: one-way requests and answers to nothing, and big bodies are skipped; the next request is answered.
func TestWhatIsNotAnswered(t *testing.T) {
	_, addr, reader := start(t, newTables(t), Options{})
	conn := dial(t, addr)
	big := strings.Repeat("x", 4<<20)
	go func() {
		for _, c := range []*frame.Command{{Code: 905, Flag: frame.FlagOneWay}, {Code: 0, Flag: frame.FlagResponse, Opaque: 5}, {Code: 21, Flag: frame.FlagOneWay}} {
			_, _ = conn.Write(append(frame.Append(nil, c, len(big)), big...))
		}
		_, _ = conn.Write(frame.Append(nil, &frame.Command{Code: 402, Opaque: 6}, 0))
	}()
	if resp, body := next(t, conn); resp.Opaque != 6 || body != `{"messageRequestModeMap":{}}` {
		t.Errorf("%+v, %s", resp, body)
	}
	if n := counted(t, reader, "requests", "response"); n != 1 {
		t.Errorf("%d answers to nothing are counted", n)
	}
}

// TestPipelined: requests that come at once, cut anywhere, are answered in order.
func TestPipelined(t *testing.T) {
	_, addr, _ := start(t, newTables(t), Options{})
	conn := dial(t, addr)
	var b []byte
	for i := range int32(100) {
		b = frame.Append(b, &frame.Command{Code: 402, Opaque: i, Encoding: frame.Encoding(i % 2)}, 0) //nolint:gosec // 0 or 1
	}
	go func() {
		for len(b) > 0 {
			n := min(len(b), 7)
			_, _ = conn.Write(b[:n])
			b = b[n:]
		}
	}()
	for i := range int32(100) {
		if resp, _ := next(t, conn); resp.Opaque != i {
			t.Fatalf("%d instead of %d", resp.Opaque, i)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	s, addr, reader := start(t, newTables(t), Options{MaxConns: 3})
	var conns []net.Conn
	for range 3 {
		conn := dial(t, addr)
		ask(t, conn, &frame.Command{Code: 402}, "")
		conns = append(conns, conn)
	}
	if _, err := dial(t, addr).Read(make([]byte, 1)); err == nil {
		t.Error("a fourth one was taken")
	}
	if n := counted(t, reader, "closed", "TOO_MANY"); n != 1 {
		t.Errorf("%d are counted", n)
	}
	conns[1].Close()
	for s.Connections() > 2 {
		runtime.Gosched()
	}
	ask(t, dial(t, addr), &frame.Command{Code: 402}, "")
}

// TestOneBodyForAll: the JSON of a version is made once.
func TestOneBodyForAll(t *testing.T) {
	f := newTables(t)
	s, err := New(Options{}, f, f)
	if err != nil {
		t.Fatal(err)
	}
	a, errA := s.table(entry.Topics)
	b, errB := s.table(entry.Topics)
	if errA != nil || errB != nil || &a[0] != &b[0] {
		t.Errorf("%v, %v", errA, errB)
	}
	f.t[entry.Topics] = decode(t, entry.Topics, `{"topicConfigTable":{"Other":{}}}`)
	if c, err := s.table(entry.Topics); err != nil || !bytes.Contains(c, []byte("Other")) {
		t.Errorf("%s, %v", c, err)
	}
}

// TestSilence: a connection that says nothing, stops in a frame or takes no answer is given up in its time.
func TestSilence(t *testing.T) {
	for name, x := range map[string]struct {
		send   []byte
		after  time.Duration
		reason string
	}{
		"nothing is said":        {nil, 120 * time.Second, "IDLE"},
		"half a prefix":          {[]byte{0, 0}, 30 * time.Second, "STALLED"},
		"a body that stops":      {append(frame.Append(nil, &frame.Command{Code: 21}, 10), 'x'), 30 * time.Second, "STALLED"},
		"an answer is not taken": {frame.Append(nil, &frame.Command{Code: 21}, 0), 30 * time.Second, "STALLED"},
	} {
		synctest.Test(t, func(t *testing.T) {
			reader := metric.NewManualReader()
			f := newTables(t)
			s, err := New(Options{Meter: metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")}, f, f)
			if err != nil {
				t.Fatal(err)
			}
			here, there := net.Pipe()
			defer here.Close()
			begin := time.Now()
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.serve(t.Context(), there)
			}()
			if _, err := here.Write(x.send); err != nil {
				t.Fatal(err)
			}
			<-done
			if took := time.Since(begin); took != x.after {
				t.Errorf("%s: closed after %v", name, took)
			}
			if n := counted(t, reader, "closed", x.reason); n != 1 {
				t.Errorf("%s: %d are counted", name, n)
			}
		})
	}
}

func FuzzServe(f *testing.F) {
	f.Add(frame.Append(nil, &frame.Command{Code: 43, Opaque: 7}, 0))
	f.Add(append(frame.Append(nil, &frame.Command{Encoding: frame.Binary, Code: 906, Fields: map[string]string{"a": "b"}}, 3), "abc"...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	tabs := newTables(f)
	s, err := New(Options{}, tabs, tabs)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.serve(t.Context(), there)
		}()
		go func() {
			_, _ = here.Write(b)
			here.Close()
		}()
		for {
			if _, _, err := remoting.ReadHeader(here, 1<<20); err != nil {
				break
			}
		}
		here.Close()
		<-done
	})
}
