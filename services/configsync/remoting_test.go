package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// fakeJava is a RocketMQ process: a broker whose slave, or a name server whose broker, a node is.
type fakeJava struct {
	addr string

	mu     sync.Mutex
	tables map[entry.Kind]string
	answer func(w io.Writer, req *frame.Command, k entry.Kind) // nil: the table
	heard  []*frame.Command                                    // requests that are not about tables
	bodies []string
}

var kindsByCode = map[int32]entry.Kind{21: entry.Topics, 43: entry.ConsumerOffsets, 45: entry.DelayOffsets, 201: entry.Groups}

func newFakeJava(t testing.TB) *fakeJava {
	t.Helper()
	f := &fakeJava{tables: map[entry.Kind]string{}}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go f.serve(conn)
		}
	}()
	return f
}

func (f *fakeJava) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, size, err := remoting.ReadHeader(in, 64<<20)
		if err != nil {
			return
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		f.mu.Lock()
		k := kindsByCode[req.Code]
		text, answer := f.tables[k], f.answer
		if k == 0 {
			f.heard, f.bodies = append(f.heard, req), append(f.bodies, string(body))
		}
		f.mu.Unlock()
		switch {
		case answer != nil && k != 0:
			answer(conn, req, k)
		default:
			say(conn, req, 0, text)
		}
	}
}

// say answers a request.
func say(w io.Writer, req *frame.Command, code int32, body string) {
	c := &frame.Command{Code: code, Flag: frame.FlagResponse, Opaque: req.Opaque, Version: 479}
	_, _ = w.Write(append(frame.Append(nil, c, len(body)), body...))
}

func (f *fakeJava) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fill sets all tables to some of a version.
func (f *fakeJava) fill(v entry.Version, count int) {
	f.set(func() {
		for _, k := range entry.Kinds() {
			f.tables[k] = tableText(k, v, count)
		}
	})
}

// took returns the codes of the requests that are not about tables.
func (f *fakeJava) took() []int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []int32
	for _, c := range f.heard {
		out = append(out, c.Code)
	}
	return out
}

// slaveOf makes a node that follows a Java master.
func slaveOf(t testing.TB, f *fakeJava, change ...func(*Config)) *node {
	t.Helper()
	return newNode(t, 1, slave, append([]func(*Config){func(c *Config) {
		c.Master.Legacy, c.Master.Address = true, f.addr
		c.SyncInterval, c.SyncTimeout = time.Hour, time.Second
	}}, change...)...)
}

// rounds asks for rounds until the status is as wanted.
func (n *node) rounds(what string, ok func(*configsyncv1.StatusResponse) bool) *configsyncv1.StatusResponse {
	n.t.Helper()
	var last *configsyncv1.StatusResponse
	until(n.t, what, func(ctx context.Context) (bool, string) {
		_, _ = n.admin().Sync(ctx, &configsyncv1.SyncRequest{}) // an error is in Status too
		st, err := n.admin().Status(ctx, &configsyncv1.StatusRequest{})
		last = st
		return err == nil && ok(st), fmt.Sprint(st, err)
	})
	return last
}

// entries reports whether every table has so many and is in sync.
func entries(count int64) func(*configsyncv1.StatusResponse) bool {
	return func(st *configsyncv1.StatusResponse) bool {
		return !slices.ContainsFunc(st.GetKinds(), func(k *configsyncv1.KindStatus) bool {
			return k.GetState() != configsyncv1.SyncState_SYNC_STATE_IN_SYNC || k.GetVersion().GetEntries() != count
		})
	}
}

// TestT14_AJavaMasterThatAnswersWrong: nothing is lost, each case is counted by its reason, and the next right answer is taken,
// whatever its version: of a Java master it is equal or different.
func TestT14_AJavaMasterThatAnswersWrong(t *testing.T) {
	t.Parallel()
	f := newFakeJava(t)
	v := entry.Version{Counter: 10, Timestamp: 1000}
	f.fill(v, 50)
	s := slaveOf(t, f, func(c *Config) { c.Remoting.MaxFrame = 64 << 10 })
	s.start()
	s.rounds("the first sync", entries(50))
	before := s.content()
	next := entry.Version{Counter: 11, Timestamp: 2000}
	body := func(of func(k entry.Kind) string) func(io.Writer, *frame.Command, entry.Kind) {
		return func(w io.Writer, req *frame.Command, k entry.Kind) { say(w, req, 0, of(k)) }
	}
	configs := []configsyncv1.Kind{configsyncv1.Kind_KIND_TOPICS, configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS}
	for name, x := range map[string]struct {
		reason string
		kinds  []configsyncv1.Kind // nil: all
		answer func(io.Writer, *frame.Command, entry.Kind)
	}{
		"an empty table": {"EMPTY_TABLE", configs, body(func(k entry.Kind) string { return tableText(k, next, 0) })},
		"nothing":        {"BROKEN_JSON", nil, body(func(entry.Kind) string { return "" })},
		"half":           {"BROKEN_JSON", nil, body(func(k entry.Kind) string { s := tableText(k, next, 50); return s[:len(s)/2] })},
		"garbage":        {"BROKEN_JSON", nil, body(func(entry.Kind) string { return "\x00\x17 no json" })},
		"no table":       {"UNKNOWN_SHAPE", nil, body(func(entry.Kind) string { return "{}" })},
		"another shape":  {"UNKNOWN_SHAPE", nil, body(func(entry.Kind) string { return `{"offsetTable":[],"topicConfigTable":7,"subscriptionGroupTable":"x"}` })},
		"too much":       {"FRAME_LENGTH", nil, body(func(k entry.Kind) string { return tableText(k, next, 20_000) })},
		"2 GiB": {"FRAME_LENGTH", nil, func(w io.Writer, _ *frame.Command, _ entry.Kind) {
			_, _ = w.Write([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 10})
		}},
		"an error": {"REMOTING_REFUSED", nil, func(w io.Writer, req *frame.Command, _ entry.Kind) { say(w, req, 1, "") }},
		"no such code": {"REMOTING_REFUSED", nil, func(w io.Writer, req *frame.Command, k entry.Kind) {
			say(w, req, 3, tableText(k, next, 1))
		}},
		"silence": {"REMOTING_TIMEOUT", nil, func(io.Writer, *frame.Command, entry.Kind) {}},
		"another number": {"REMOTING_TIMEOUT", nil, func(w io.Writer, req *frame.Command, k entry.Kind) {
			req.Opaque += 7
			say(w, req, 0, tableText(k, next, 1))
		}},
		"the end in the middle": {"REMOTING_LOST", nil, func(w io.Writer, req *frame.Command, k entry.Kind) {
			text := tableText(k, next, 1)
			b := append(frame.Append(nil, &frame.Command{Flag: frame.FlagResponse, Opaque: req.Opaque}, len(text)), text[:10]...)
			_, _ = w.Write(b)
			w.(io.Closer).Close()
		}},
		"no header": {"BROKEN_HEADER", nil, func(w io.Writer, _ *frame.Command, _ entry.Kind) {
			_, _ = w.Write([]byte("\x00\x00\x00\x08\x00\x00\x00\x04abcd"))
		}},
	} {
		f.set(func() { f.answer = x.answer })
		count := s.refusals(x.reason)
		s.rounds(name, func(st *configsyncv1.StatusResponse) bool {
			for _, k := range st.GetKinds() {
				if k.GetRefused()[x.reason] == count[k.GetKind()] && (x.kinds == nil || slices.Contains(x.kinds, k.GetKind())) {
					return false
				}
			}
			return true
		})
		if after := s.content(); !maps.Equal(after, before) {
			t.Errorf("%s: the slave's tables have changed", name)
		}
	}
	// The right version with another content is the same table to who follows a Java master, except for offsets, which never fall.
	f.set(func() { f.answer = nil })
	f.fill(v, 49)
	s.rounds("the version that it has", entries(50))
	// A master that was restarted may begin anew.
	f.fill(entry.Version{Counter: 1, Timestamp: 500}, 49)
	s.rounds("a version that is not greater", func(st *configsyncv1.StatusResponse) bool {
		for _, k := range st.GetKinds() {
			want := int64(50) // of offsets nothing goes
			if slices.Contains(configs, k.GetKind()) {
				want = 49 // exactly one topic and one group
			}
			if k.GetVersion().GetEntries() != want {
				return false
			}
		}
		return true
	})
	if slices.Contains(s.names(), "Topic0049") {
		t.Error("the topic that the master deleted is there")
	}
}

// refusals are the numbers of refusals for a reason, by kind.
func (n *node) refusals(reason string) map[configsyncv1.Kind]int64 {
	n.t.Helper()
	st, err := n.admin().Status(n.t.Context(), &configsyncv1.StatusRequest{})
	if err != nil {
		n.t.Fatal(err)
	}
	out := map[configsyncv1.Kind]int64{}
	for _, k := range st.GetKinds() {
		out[k.GetKind()] = k.GetRefused()[reason]
	}
	return out
}

// TestT15_AJavaMasterThatIsBehind: its lower offset is shown by Diff, and taken only when configured.
func TestT15_AJavaMasterThatIsBehind(t *testing.T) {
	t.Parallel()
	f := newFakeJava(t)
	f.set(func() {
		for _, k := range entry.Kinds() {
			f.tables[k] = tableText(k, entry.Version{Counter: 1, Timestamp: 1}, 1)
		}
		f.tables[entry.ConsumerOffsets] = `{"offsetTable":{"TopicA@GroupA":{0:100}}}`
	})
	s := slaveOf(t, f)
	s.start()
	s.rounds("the first sync", entries(1))
	s.halt()
	s.cfg.BrokerRole, s.cfg.Master = asyncMaster, Master{}
	s.start().awaitOpen()
	s.commit(topicA, groupA, 150)
	s.halt()
	s.cfg.BrokerRole, s.cfg.Master = slave, Master{Legacy: true, Address: f.addr}
	s.start()
	s.rounds("three rounds", func(st *configsyncv1.StatusResponse) bool {
		return slices.ContainsFunc(st.GetKinds(), func(k *configsyncv1.KindStatus) bool {
			return k.GetKind() == configsyncv1.Kind_KIND_CONSUMER_OFFSETS && k.GetRefused()["LOWER_OFFSET"] >= 3
		})
	})
	if got := s.offset(topicA, groupA); got != 150 {
		t.Errorf("the offset is %d, not 150", got)
	}
	stream, err := s.admin().Diff(t.Context(), &configsyncv1.DiffRequest{Address: f.addr, Kinds: []configsyncv1.Kind{configsyncv1.Kind_KIND_CONSUMER_OFFSETS}})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil || len(resp.GetDifferences()) != 1 || resp.GetDifferences()[0].GetHere() != "150" || resp.GetDifferences()[0].GetThere() != "100" {
		t.Errorf("Diff shows %v, %v", resp, err)
	}
	s.halt()
	s.cfg.Master.TakeLowerOffsets = true
	s.start()
	s.awaitOffset(topicA, groupA, 100)
}

// TestT13_TablesAboveFourMiB: tables come from a Java master in one answer each, the topics' above 4 MiB, and leave for Java slaves
// the same.
func TestT13_TablesAboveFourMiB(t *testing.T) {
	t.Parallel()
	const count = 4000
	f := newFakeJava(t)
	f.fill(entry.Version{Counter: 1, Timestamp: 1}, count)
	f.set(func() {
		note := fmt.Sprintf(`"topicSysFlag":0,"zNote":%q`, strings.Repeat("n", 1000))
		f.tables[entry.Topics] = strings.ReplaceAll(f.tables[entry.Topics], `"topicSysFlag":0`, note)
	})
	if n := len(f.tables[entry.Topics]); n < 4<<20 {
		t.Fatalf("the topics are %d bytes", n)
	}
	s := slaveOf(t, f, func(c *Config) { c.SyncTimeout = patience })
	s.start()
	s.rounds("the sync", entries(count))
	st := s.rounds("an idle round", entries(count))
	for _, k := range st.GetKinds() {
		if k.GetRounds()["unchanged"] == 0 {
			t.Errorf("%v", k)
		}
	}
	s.halt()
	s.cfg.BrokerRole, s.cfg.Master = asyncMaster, Master{}
	s.cfg.Remoting.Listen = servicetest.FreeAddr(t, -2)
	s.start().awaitOpen()
	conn := s.call(s.cfg.Remoting.Listen)
	for code, k := range kindsByCode {
		_, body, err := conn.Call(t.Context(), code, nil, nil)
		if err != nil {
			t.Fatalf("%v: %v", k, err)
		}
		want, errW := jsonfile.Decode(k, []byte(f.tables[k]))
		got, errG := jsonfile.Decode(k, body)
		if errW != nil || errG != nil || got.Len() != count || len(slices.Collect(table.Diff(want, got))) > 0 {
			t.Errorf("%v: %v, %v", k, errW, errG)
		}
	}
}

// call connects to a remoting port, as a Java slave does.
func (n *node) call(addr string) *remoting.Conn {
	n.t.Helper()
	conn, err := remoting.Connect(n.t.Context(), (&net.Dialer{Timeout: patience}).DialContext, addr, 64<<20)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

// TestT14_JavaSlavesOfATandemPair: the name server hears of whoever leads, slaves get whole tables from it, on both ports and in
// their order, and from the other node nothing at all.
func TestT14_JavaSlavesOfATandemPair(t *testing.T) {
	t.Parallel()
	ns := newFakeJava(t)
	g, st := withStorages(t, 2, func(c *Config) {
		c.Remoting.Listen, c.Remoting.HAServerAddr, c.Remoting.NameServers = servicetest.FreeAddr(t, -2), "127.0.0.1:10912", []string{ns.addr}
	})
	promote(st, 0, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen()
	g[0].create("TopicA", "TopicB")
	g[0].createGroups("GroupA")
	g[0].commit(topicA, groupA, 0)
	same(t, g...)
	lead, follower := 0, 1
	for swap := range 3 {
		for code, want := range map[int32]string{21: "TopicB", 43: "TopicA@GroupA", 201: "GroupA", 402: `{"messageRequestModeMap":{}}`} {
			for _, addr := range []string{g[lead].cfg.Remoting.Listen, below(t, g[lead].cfg.Remoting.Listen)} {
				if _, body, err := g[lead].call(addr).Call(t.Context(), code, nil, nil); err != nil || !strings.Contains(string(body), want) {
					t.Errorf("swap %d: %d from the master at %s: %s, %v", swap, code, addr, body, err)
				}
			}
			if _, _, err := g[follower].call(g[follower].cfg.Remoting.Listen).Call(t.Context(), code, nil, nil); !errors.Is(err, remoting.ErrRefused) {
				t.Errorf("swap %d: %d from the slave: %v", swap, code, err)
			}
		}
		// No delay offsets are there, and the slave's must not go.
		if _, _, err := g[lead].call(g[lead].cfg.Remoting.Listen).Call(t.Context(), 45, nil, nil); !errors.Is(err, remoting.ErrRefused) {
			t.Errorf("delay offsets: %v", err)
		}
		until(t, "the registration of the master", func(context.Context) (bool, string) {
			ns.mu.Lock()
			defer ns.mu.Unlock()
			last := len(ns.heard) - 1
			return last >= 0 && ns.heard[last].Code == 103 && ns.heard[last].Fields["brokerAddr"] == g[lead].cfg.Remoting.Listen &&
				ns.heard[last].Fields["haServerAddr"] == "127.0.0.1:10912" &&
				(swap == 0 || strings.Contains(ns.bodies[last], `"TopicA"`)), fmt.Sprint(ns.heard)
		})
		lead, follower = follower, lead
		promote(st, lead, int64(swap+2))
		g[lead].awaitOpen()
		until(t, "the old master to leave", func(context.Context) (bool, string) {
			codes := ns.took()
			return slices.Contains(codes[max(0, len(codes)-3):], 104), fmt.Sprint(codes)
		})
	}
	for _, n := range g {
		n.halt()
	}
	if codes := ns.took(); codes[len(codes)-1] != 104 {
		t.Errorf("at the end: %v", codes)
	}
}

func below(t testing.TB, addr string) string {
	t.Helper()
	out, err := vip(addr)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestT16_BrokenTablesLeaveForNobody: a node of which both copies of a table are broken registers nowhere and answers errors.
func TestT16_BrokenTablesLeaveForNobody(t *testing.T) {
	t.Parallel()
	ns := newFakeJava(t)
	n, _ := filled(t)
	for _, name := range []string{"topics.json", "topics.json.bak"} {
		write(t, n.file(name), "\x00\x17 not json at all")
	}
	remove(t, filepath.Join(n.cfg.StorePathRootDir, configDir, "tandem"))
	n.cfg.Remoting.Listen, n.cfg.Remoting.HAServerAddr, n.cfg.Remoting.NameServers = servicetest.FreeAddr(t, -2), "127.0.0.1:10912", []string{ns.addr}
	n.start()
	n.await("saying so", func(st *configsyncv1.StatusResponse) bool { return st.GetMaster() && st.GetReason() == "TABLE_BROKEN" })
	conn := n.call(n.cfg.Remoting.Listen)
	for code := range kindsByCode {
		if _, _, err := conn.Call(t.Context(), code, nil, nil); !errors.Is(err, remoting.ErrRefused) {
			t.Errorf("%d: %v", code, err)
		}
	}
	if got := ns.took(); len(got) > 0 {
		t.Errorf("the name server has heard %v", got)
	}
}

// TestAReignEndsALegacy: a Java master is followed as long as the storage knows of no epoch, and never after.
func TestAReignEndsALegacy(t *testing.T) {
	t.Parallel()
	f := newFakeJava(t)
	f.fill(entry.Version{Counter: 1, Timestamp: 1}, 3)
	g, st := withStorages(t, 2, func(c *Config) {
		c.Master.Legacy, c.Master.Address, c.SyncInterval = true, f.addr, 50*time.Millisecond
	})
	for _, n := range g {
		n.start()
	}
	for _, n := range g {
		n.await("the Java master's tables", entries(3))
	}
	promote(st, 0, 1)
	g[0].awaitOpen().create("TandemsOwn")
	same(t, g...)
	g[1].await("the Tandem master", func(st *configsyncv1.StatusResponse) bool { return st.GetMasterAddress() == g[0].cfg.Listen })
	f.fill(entry.Version{Counter: 2, Timestamp: 2}, 2)
	promote(st, 1, 2)
	g[1].awaitOpen().create("TandemsToo")
	same(t, g...)
	for _, n := range g {
		if got := n.names(); !slices.Equal(got, []string{"TandemsOwn", "TandemsToo", "Topic0000", "Topic0001", "Topic0002"}) {
			t.Errorf("%v", got)
		}
	}
}
