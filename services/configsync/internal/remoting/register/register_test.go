package register

import (
	"bufio"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// node is a node's role and topics.
type node struct {
	mu     sync.Mutex
	over   chan struct{} // nil: it does not lead
	reigns *watermark.Mark
	topics *table.Table
}

func newNode() *node { return &node{reigns: watermark.New(0), topics: table.New(entry.Topics)} }

func (n *node) lead() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = make(chan struct{})
	n.reigns.Advance(n.reigns.Load() + 1)
}

func (n *node) step() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.over)
	n.over = nil
}

func (n *node) Reign() (int64, <-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over == nil {
		return 0, nil, errors.New("a slave")
	}
	return n.reigns.Load(), n.over, nil
}

func (n *node) Reigns() *watermark.Mark { return n.reigns }

func (n *node) Snapshot(entry.Kind) *table.Table {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.topics
}

// heard is a request that a name server got.
type heard struct {
	at   time.Duration
	conn int
	*frame.Command
	body string
}

// nameServer answers over net.Pipe, by the rules of the real ones.
type nameServer struct {
	mu    sync.Mutex
	begin time.Time
	conns int
	down  bool
	code  int32 // of its answers
	mute  bool
	live  []net.Conn
	heard []heard
}

func (s *nameServer) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("refused")
	}
	here, there := net.Pipe()
	s.conns++
	s.live = append(s.live, here)
	go s.serve(here, s.conns)
	return there, nil
}

func (s *nameServer) serve(conn net.Conn, id int) {
	in := bufio.NewReader(conn)
	for {
		c, size, err := remoting.ReadHeader(in, 1<<20)
		if err != nil {
			conn.Close()
			return
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		s.mu.Lock()
		s.heard = append(s.heard, heard{time.Since(s.begin), id, c, string(body)})
		code, mute := s.code, s.mute
		s.mu.Unlock()
		if mute {
			continue
		}
		// Something that nobody asked for comes before the answer.
		b := frame.Append(nil, &frame.Command{Code: 40, Flag: frame.FlagOneWay}, 3)
		b = append(b, "xyz"...)
		_, _ = conn.Write(frame.Append(b, &frame.Command{Code: code, Flag: frame.FlagResponse, Opaque: c.Opaque, Remark: "as told"}, 0))
	}
}

// cut ends all connections.
func (s *nameServer) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.live {
		c.Close()
	}
	s.live = nil
}

func (s *nameServer) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// take returns what was heard since the last time.
func (s *nameServer) take() []heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.heard
	s.heard = nil
	return out
}

// run runs a registrar in a bubble.
func run(t *testing.T, test func(t *testing.T, n *node, s *nameServer, r *Registrar, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, s := newNode(), &nameServer{begin: time.Now()}
		r := New(Options{
			NameServers: []string{"ns:9876"}, Cluster: "TestCluster", BrokerName: "broker-a", BrokerAddr: "127.0.0.1:10921",
			HAServerAddr: "127.0.0.1:10912", Dial: s.dial,
		}, n, n)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
		test(t, n, s, r, stop)
		stop()
		s.cut()
		synctest.Wait()
	})
}

// TestALife: nothing before the node leads, 103 every 30 s on one connection while it does, 104 when it leads no more, and again
// in the next reign; 104 at the stop.
func TestALife(t *testing.T) {
	run(t, func(t *testing.T, n *node, s *nameServer, r *Registrar, stop func()) {
		<-time.After(time.Hour)
		if got := s.take(); len(got) > 0 || s.conns > 0 {
			t.Fatalf("a slave has said %v", got)
		}
		n.lead()
		<-time.After(95 * time.Second)
		got := s.take()
		if len(got) != 4 {
			t.Fatalf("%d requests in 95 s", len(got))
		}
		for i, h := range got {
			if h.Code != 103 || h.conn != 1 || h.at != time.Hour+time.Duration(i)*30*time.Second {
				t.Errorf("%d: code %d at %v on connection %d", i, h.Code, h.at, h.conn)
			}
		}
		if st := r.States()[0]; !st.Registered || st.Registrations != 4 || st.LastError != nil {
			t.Errorf("%+v", st)
		}
		n.step()
		synctest.Wait()
		got = s.take()
		if len(got) != 1 || got[0].Code != 104 || got[0].conn != 1 || len(got[0].Fields) != 4 || got[0].Fields["brokerAddr"] != "127.0.0.1:10921" {
			t.Fatalf("after its reign: %v", got)
		}
		if r.States()[0].Registered {
			t.Error("still registered")
		}
		<-time.After(time.Hour)
		n.lead()
		synctest.Wait()
		if got = s.take(); len(got) != 1 || got[0].Code != 103 || got[0].conn != 2 {
			t.Fatalf("in the next reign: %v", got)
		}
		stop()
		if got = s.take(); len(got) != 1 || got[0].Code != 104 {
			t.Fatalf("at the stop: %v", got)
		}
	})
}

// TestTooManyTopics: slaves find the node all the same.
func TestTooManyTopics(t *testing.T) {
	run(t, func(t *testing.T, n *node, s *nameServer, r *Registrar, _ func()) {
		r.o.MaxFrame = 8 << 10
		e := n.topics.Edit(1, 1)
		for i := range 100 {
			if err := e.Put(entry.NewTopic("Topic" + strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		n.topics, _ = e.Done()
		n.lead()
		synctest.Wait()
		if got := s.take(); len(got) != 1 || got[0].Code != 103 || len(got[0].body) > 4<<10 || strings.Contains(got[0].body, "Topic1") {
			t.Errorf("%v", got)
		}
	})
}

// TestLost: whatever happens to the connection or the name server, the node is registered again soon.
func TestLost(t *testing.T) {
	run(t, func(t *testing.T, n *node, s *nameServer, r *Registrar, _ func()) {
		n.lead()
		<-time.After(10 * time.Second)
		s.take()
		s.cut()
		<-time.After(2 * time.Second)
		if got := s.take(); len(got) != 1 || got[0].Code != 103 || got[0].conn != 2 {
			t.Fatalf("after a cut: %v", got)
		}
		s.set(func() { s.down = true })
		s.cut()
		<-time.After(10 * time.Minute)
		if st := r.States()[0]; st.Registered || !errors.Is(st.LastError, remoting.ErrUnreachable) || st.Failures < 10 || st.Failures > 60 {
			t.Errorf("while it is down: %+v", st)
		}
		s.set(func() { s.down = false })
		<-time.After(35 * time.Second)
		if got := s.take(); len(got) == 0 || got[0].Code != 103 {
			t.Fatalf("it is back: %v", got)
		}
		s.set(func() { s.code = 1 })
		<-time.After(time.Minute)
		if st := r.States()[0]; st.Registered || !errors.Is(st.LastError, remoting.ErrRefused) || !strings.Contains(st.LastError.Error(), "as told") {
			t.Errorf("it refuses: %+v", st)
		}
		s.set(func() { s.code, s.mute = 0, true })
		<-time.After(2 * time.Minute)
		if st := r.States()[0]; st.Registered || !errors.Is(st.LastError, remoting.ErrTimeout) {
			t.Errorf("it is mute: %+v", st)
		}
		s.set(func() { s.mute = false })
		<-time.After(40 * time.Second)
		if st := r.States()[0]; !st.Registered || st.LastError != nil {
			t.Errorf("in the end: %+v", st)
		}
	})
}

// TestRegistration: the fields are as the name servers want them, the body is one that they read, and it has never exactly one topic.
func TestRegistration(t *testing.T) {
	const always = `"broker-a":{"attributes":{},"order":false,"perm":1,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"broker-a","topicSysFlag":0,"writeQueueNums":1},` +
		`"rmq_sys_SYNC_BROKER_MEMBER_broker-a":{"attributes":{},"order":false,"perm":1,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"rmq_sys_SYNC_BROKER_MEMBER_broker-a","topicSysFlag":0,"writeQueueNums":1}`
	const topic = `"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}`
	of := func(entries string) string {
		return `{"dataVersion":{"counter":1,"stateVersion":2,"timestamp":3},"topicConfigTable":{` + entries + `}}`
	}
	for in, want := range map[string]string{
		"":                   always,
		topic:                always + "," + topic,
		always:               always,
		always + "," + topic: topic + "," + always,
	} {
		topics, err := jsonfile.Decode(entry.Topics, []byte(of(in)))
		if err != nil {
			t.Fatal(err)
		}
		fields, body := Registration("TestCluster", "broker-a", "127.0.0.1:10921", "127.0.0.1:10912", topics)
		if got := string(body); got != `{"filterServerList":[],"topicConfigSerializeWrapper":`+of(want)+`}` {
			t.Errorf("%s", got)
		}
		wantFields := map[string]string{
			"brokerName": "broker-a", "brokerAddr": "127.0.0.1:10921", "clusterName": "TestCluster", "haServerAddr": "127.0.0.1:10912",
			"brokerId": "0", "compressed": "false", "bodyCrc32": strconv.FormatInt(int64(crc32.ChecksumIEEE(body)&0x7fffffff), 10),
		}
		for k, v := range wantFields {
			if fields[k] != v {
				t.Errorf("%s is %q, not %q", k, fields[k], v)
			}
		}
		if len(fields) != len(wantFields) {
			t.Errorf("%v", fields)
		}
	}
	// Numbers of the Java side: CRC-32 of a body as the name server computes it.
	if n := crc32.ChecksumIEEE([]byte("123456789")) & 0x7fffffff; n != 0x4bf43926 {
		t.Errorf("%x", n)
	}
}
