package rpc_test

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/rpc"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

// recorder is a store that remembers what it is asked and answers by plan.
type recorder struct {
	begun  []store.Message
	waits  []store.Wait
	gets   []store.Get
	refuse map[string]error // by topic
	queues []store.QueueInfo
}

func (r *recorder) Begin(_ context.Context, m *store.Message, w store.Wait) (store.Pending, error) {
	if err := r.refuse[m.Topic]; err != nil {
		return store.Pending{}, err
	}
	c := *m
	c.Body = append([]byte(nil), m.Body...)
	r.begun, r.waits = append(r.begun, c), append(r.waits, w)
	return store.Pending{Result: store.Result{
		Status: store.PutOK, Offset: int64(100 * len(r.begun)), StoreHost: netip.MustParseAddrPort("10.0.0.1:10911"),
	}}, nil
}

func (r *recorder) Finish(_ context.Context, p *store.Pending) (store.Result, error) {
	return p.Result, nil
}

func (r *recorder) PutBatch(_ context.Context, ms []store.Message, _ store.Wait) ([]store.Result, error) {
	r.begun = append(r.begun, ms...)
	return make([]store.Result, len(ms)), nil
}

func (r *recorder) Get(_ context.Context, g *store.Get) (store.GetResult, error) {
	r.gets = append(r.gets, *g)
	return store.GetResult{Status: store.NoNewMessage, Next: g.QueueOffset}, nil
}

func (r *recorder) WaitNew(ctx context.Context, _ string, _ int32, _ int64, _ func() *watermark.Mark) error {
	<-ctx.Done()
	return ctx.Err()
}

func (r *recorder) GetByOffset(int64, int) (store.Record, error) {
	return store.Record{}, store.ErrNoRecord
}

func (r *recorder) ListQueues(_ string, after store.QueueInfo, _ int64, limit int) ([]store.QueueInfo, error) {
	i := 0
	for i < len(r.queues) && after.Topic != "" && (r.queues[i].Topic < after.Topic || r.queues[i].Topic == after.Topic && r.queues[i].ID <= after.ID) {
		i++
	}
	return r.queues[i:min(i+limit, len(r.queues))], nil
}

func (r *recorder) SearchOffset(topic string, queueID int32, storeTime int64) (int64, store.QueueInfo, error) {
	return storeTime / 2, store.QueueInfo{Topic: topic, ID: queueID, Min: 1, Max: 9}, nil
}

func newService(r *recorder) *rpc.Message { return rpc.NewMessage(r, nil, 1<<20) }

func wireMessage(topic, body string) *storagev1.Message {
	return &storagev1.Message{Topic: topic, Body: []byte(body)}
}

func TestPutTranslates(t *testing.T) {
	r := &recorder{}
	m := wireMessage("T", "x")
	m.QueueId, m.Tag, m.Keys, m.Properties = proto.Int32(3), "A", []string{"k1", "k2"}, map[string]string{"b": "2", "a": "1", message.PropertyCRC32: "0123456789"}
	resp, err := newService(r).Put(t.Context(), &storagev1.PutRequest{Message: m, Acks: proto.Int32(2), Timeout: durationpb.New(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if res := resp.GetResult(); res.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || res.GetOffset() != 100 || res.GetOffsetMessageId() != "0A00000100002A9F0000000000000064" {
		t.Errorf("result %v", res)
	}
	got := r.begun[0]
	if want := "a\x011\x02b\x012\x02TAGS\x01A\x02KEYS\x01k1 k2\x02"; string(got.Properties) != want || got.QueueID != 3 {
		t.Errorf("queue %d, properties %q, want %q", got.QueueID, got.Properties, want)
	}
	if r.waits[0] != (store.Wait{Acks: 2, Timeout: time.Second}) {
		t.Errorf("wait %+v", r.waits[0])
	}
}

func TestPutNamesTheField(t *testing.T) {
	edit := func(f func(*storagev1.PutRequest)) *storagev1.PutRequest {
		req := &storagev1.PutRequest{Message: wireMessage("T", "x")}
		f(req)
		return req
	}
	for field, req := range map[string]*storagev1.PutRequest{
		"message":                 {},
		"acks":                    edit(func(r *storagev1.PutRequest) { r.Acks = proto.Int32(-1) }),
		"timeout":                 edit(func(r *storagev1.PutRequest) { r.Timeout = durationpb.New(-1) }),
		"message.queue_id":        edit(func(r *storagev1.PutRequest) { r.Message.QueueId = proto.Int32(-1) }),
		"message.born_timestamp":  edit(func(r *storagev1.PutRequest) { r.Message.BornTimestamp = -1 }),
		"message.tag":             edit(func(r *storagev1.PutRequest) { r.Message.Tag = "a\x02" }),
		"message.keys":            edit(func(r *storagev1.PutRequest) { r.Message.Keys = []string{"a b"} }),
		`message.properties["a"]`: edit(func(r *storagev1.PutRequest) { r.Message.Properties = map[string]string{"a": "\x01"} }),
		`message.properties[""]`:  edit(func(r *storagev1.PutRequest) { r.Message.Properties = map[string]string{"": "v"} }),
	} {
		_, err := newService(&recorder{}).Put(t.Context(), req)
		if e := errdefs.As(err); e == nil || e.Class != errdefs.InvalidArgument || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	twice := edit(func(r *storagev1.PutRequest) {
		r.Message.Tag, r.Message.Properties = "a", map[string]string{"TAGS": "b"}
	})
	if _, err := newService(&recorder{}).Put(t.Context(), twice); errdefs.As(err) == nil || errdefs.As(err).Field != "message.tag" {
		t.Errorf("a tag twice: %v", err)
	}
	r := &recorder{refuse: map[string]error{"T": errdefs.Invalid("body", "is empty")}}
	if _, err := newService(r).Put(t.Context(), edit(func(*storagev1.PutRequest) {})); errdefs.As(err) == nil || errdefs.As(err).Field != "message.body" {
		t.Errorf("the store's own field: %v", err)
	}
}

// putStream is a client's side of a PutStream, all requests at once.
type putStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // a stream has one
	in   []*storagev1.PutStreamRequest
	end  error
	sent []*storagev1.PutStreamResponse
}

func (s *putStream) Context() context.Context { return s.ctx }

func (s *putStream) Recv() (*storagev1.PutStreamRequest, error) {
	if len(s.in) == 0 {
		return nil, s.end
	}
	req := s.in[0]
	s.in = s.in[1:]
	return req, nil
}

func (s *putStream) Send(r *storagev1.PutStreamResponse) error {
	s.sent = append(s.sent, r)
	return nil
}

func TestPutStreamAnswersInOrder(t *testing.T) {
	r := &recorder{refuse: map[string]error{
		"bad": errdefs.Invalid("topic", "is bad"), "slave": errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "a slave"),
	}}
	s := &putStream{ctx: t.Context(), end: io.EOF}
	next, want := uint64(1), []storagev1.PutStatus{}
	for i := range 700 {
		req := &storagev1.PutStreamRequest{Sequence: next}
		for j := range 1 + i%5 {
			topic, status := "T", storagev1.PutStatus_PUT_STATUS_PUT_OK
			switch (i + j) % 50 {
			case 7:
				topic, status = "bad", storagev1.PutStatus_PUT_STATUS_MESSAGE_ILLEGAL
			case 9:
				topic, status = "slave", storagev1.PutStatus_PUT_STATUS_NOT_MASTER
			}
			req.Messages, want, next = append(req.Messages, wireMessage(topic, "x")), append(want, status), next+1
		}
		s.in = append(s.in, req)
	}
	if err := newService(r).PutStream(s); err != nil {
		t.Fatal(err)
	}
	var got []*storagev1.PutResult
	for _, a := range s.sent {
		got = append(got, a.GetResults()...)
		if a.GetSequence() != uint64(len(got)) {
			t.Fatalf("sequence %d with %d results", a.GetSequence(), len(got))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d results for %d messages", len(got), len(want))
	}
	for i, res := range got {
		if res.GetStatus() != want[i] || (res.GetOffset() >= 0) != (want[i] == storagev1.PutStatus_PUT_STATUS_PUT_OK) {
			t.Errorf("message %d: %v, want %v", i+1, res, want[i])
		}
	}
}

// TestPutStreamAnswersLargeRequestsInParts: and what was appended before a failure has its answer before the stream ends.
func TestPutStreamAnswersLargeRequestsInParts(t *testing.T) {
	const n, most = 2500, 1024
	req := &storagev1.PutStreamRequest{Sequence: 1}
	for range n {
		req.Messages = append(req.Messages, wireMessage("T", "x"))
	}
	req.Messages = append(req.Messages, wireMessage("broken", "x"))
	s := &putStream{ctx: t.Context(), in: []*storagev1.PutStreamRequest{req}, end: io.EOF}
	err := newService(&recorder{refuse: map[string]error{"broken": errdefs.New(errdefs.DataLoss, "LOG_FAULTED", "broken")}}).PutStream(s)
	if e := errdefs.As(err); e == nil || e.Meta["sequence"] != "2501" {
		t.Errorf("%v", err)
	}
	got := 0
	for _, a := range s.sent {
		got += len(a.GetResults())
		if len(a.GetResults()) > most || a.GetSequence() != uint64(got) {
			t.Errorf("an answer up to %d with %d results, %d in all", a.GetSequence(), len(a.GetResults()), got)
		}
	}
	if got != n {
		t.Errorf("%d results of %d messages", got, n)
	}
}

func TestPutStreamEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		stream *putStream
		ok     func(error) bool
	}{
		"a gap in the sequence": {
			&putStream{in: []*storagev1.PutStreamRequest{{Sequence: 1, Messages: []*storagev1.Message{wireMessage("T", "x")}}, {Sequence: 3}}},
			func(err error) bool { e := errdefs.As(err); return e != nil && e.Field == "sequence" },
		},
		"a broken store": {
			&putStream{in: []*storagev1.PutStreamRequest{{Sequence: 1, Messages: []*storagev1.Message{wireMessage("broken", "x")}}}},
			func(err error) bool {
				e := errdefs.As(err)
				return e != nil && e.Class == errdefs.DataLoss && e.Meta["sequence"] == "1"
			},
		},
		"a lost client": {&putStream{end: io.ErrUnexpectedEOF}, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
	} {
		tc.stream.ctx = t.Context()
		r := &recorder{refuse: map[string]error{"broken": errdefs.New(errdefs.DataLoss, "LOG_FAULTED", "broken")}}
		if err := newService(r).PutStream(tc.stream); !tc.ok(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadsAreChecked(t *testing.T) {
	r := &recorder{}
	s := newService(r)
	for field, req := range map[string]*storagev1.GetRequest{
		"topic": {}, "queue_id": {Topic: "T", QueueId: -1}, "queue_offset": {Topic: "T", QueueOffset: -1},
		"max_messages": {Topic: "T", MaxMessages: 1025}, "max_bytes": {Topic: "T", MaxBytes: -1},
	} {
		if _, err := s.Get(t.Context(), req); errdefs.As(err) == nil || errdefs.As(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := s.Get(t.Context(), &storagev1.GetRequest{Topic: "T", MaxBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if g := r.gets[0]; g.MaxMessages != 32 || g.MaxBytes >= 1<<20 || g.HardBytes >= 1<<20 {
		t.Errorf("a reply may not exceed the server's limit: %+v", g)
	}
}

func TestSearchOffset(t *testing.T) {
	s := newService(&recorder{})
	resp, err := s.SearchOffset(t.Context(), &storagev1.SearchOffsetRequest{Topic: "T", QueueId: 1, StoreTimestamp: 8})
	if err != nil || resp.GetQueueOffset() != 4 || resp.GetMinQueueOffset() != 1 || resp.GetMaxQueueOffset() != 9 {
		t.Errorf("%v, %v", resp, err)
	}
	for field, req := range map[string]*storagev1.SearchOffsetRequest{
		"topic": {}, "queue_id": {Topic: "T", QueueId: -1}, "store_timestamp": {Topic: "T", StoreTimestamp: -1},
	} {
		if _, err := s.SearchOffset(t.Context(), req); errdefs.As(err) == nil || errdefs.As(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestListQueuesPages(t *testing.T) {
	r := &recorder{}
	for _, topic := range []string{"a", "b c", "d"} {
		for id := range int32(5) {
			r.queues = append(r.queues, store.QueueInfo{Topic: topic, ID: id})
		}
	}
	var got []string
	req := &storagev1.ListQueuesRequest{PageSize: 4}
	for pages := 1; ; pages++ {
		resp, err := newService(r).ListQueues(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range resp.GetQueues() {
			got = append(got, q.GetTopic())
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			if pages != 4 || len(got) != 15 {
				t.Errorf("%d queues in %d pages", len(got), pages)
			}
			break
		}
	}
	for _, token := range []string{"!", "eA", strings.Repeat("A", 50)} {
		req := &storagev1.ListQueuesRequest{PageToken: token}
		if _, err := newService(r).ListQueues(t.Context(), req); errdefs.As(err) == nil || errdefs.As(err).Field != "page_token" {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

// bytesLog is a log in memory, in files of 1,000 bytes.
type bytesLog []byte

func (b bytesLog) FirstOffset() int64 { return 0 }
func (b bytesLog) End() int64         { return int64(len(b)) }
func (b bytesLog) View(offset int64, limit int) ([]byte, func(), error) {
	end := min(offset+int64(limit), (offset/1000+1)*1000, int64(len(b)))
	return b[offset:end], func() {}, nil
}

func TestChecksum(t *testing.T) {
	log := make(bytesLog, 20000)
	for i := range log {
		log[i] = byte(i * 7)
	}
	s := rpc.NewAdmin(log, nil, nil, nil, nil)
	resp, err := s.Checksum(t.Context(), &storagev1.ChecksumRequest{FromOffset: 5, StretchSize: 4096})
	if err != nil || resp.GetToOffset() != 20000 || len(resp.GetChecksums()) != 5 {
		t.Fatalf("%v, %v", resp, err)
	}
	for i, sum := range resp.GetChecksums() {
		from, to := 5+i*4096, min(5+(i+1)*4096, 20000)
		if want := crc32.Checksum(log[from:to], crc32.MakeTable(crc32.Castagnoli)); sum != want {
			t.Errorf("stretch %d: %08x, want %08x", i, sum, want)
		}
	}
	for field, req := range map[string]*storagev1.ChecksumRequest{
		"from_offset": {FromOffset: 20001}, "to_offset": {FromOffset: 10, ToOffset: 9}, "stretch_size": {StretchSize: 100},
	} {
		if _, err := s.Checksum(t.Context(), req); errdefs.As(err) == nil || errdefs.As(err).Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// lineage answers with what it was given and keeps what it was asked.
type lineage struct {
	promise epoch.PromiseRequest
	follow  epoch.FollowRequest
	heard   epoch.Heard
	answer  epoch.FollowAnswer
}

func (l *lineage) OnPromise(_ context.Context, r epoch.PromiseRequest) (epoch.Heard, error) {
	l.promise = r
	return l.heard, nil
}

func (l *lineage) OnDrain(_ context.Context, _ epoch.DrainRequest, send func(int64) error) error {
	return send(l.heard.End)
}

func (l *lineage) OnFollow(_ context.Context, r epoch.FollowRequest, send func(epoch.FollowAnswer) error) error {
	l.follow = r
	return send(l.answer)
}

func (l *lineage) OnRangeChecksum(_ context.Context, from, to, stretch int64) ([]uint32, int64, error) {
	return []uint32{uint32(from), uint32(to), uint32(stretch)}, to, nil
}

// newborn is a store whose queue comes to be with one message while somebody waits for it.
type newborn struct {
	recorder

	waited []int64
}

func (n *newborn) Get(_ context.Context, g *store.Get) (store.GetResult, error) {
	n.gets = append(n.gets, *g)
	switch {
	case len(n.waited) == 0:
		return store.GetResult{Status: store.NoQueue}, nil
	case g.QueueOffset > 1:
		return store.GetResult{Status: store.OffsetOverflow, Next: 1, Max: 1}, nil
	}
	return store.GetResult{Status: store.Found, Next: 1, Max: 1}, nil
}

func (n *newborn) WaitNew(ctx context.Context, _ string, _ int32, at int64, _ func() *watermark.Mark) error {
	if n.waited = append(n.waited, at); at > 0 {
		<-ctx.Done()
	}
	return ctx.Err()
}

type getStream struct {
	grpc.ServerStreamingServer[storagev1.GetStreamResponse]

	ctx  context.Context //nolint:containedctx // a stream has one
	sent []*storagev1.GetStreamResponse
}

func (s *getStream) Context() context.Context { return s.ctx }

func (s *getStream) Send(r *storagev1.GetStreamResponse) error {
	s.sent = append(s.sent, r)
	return errors.New("enough")
}

// TestAStreamBeforeItsQueue: a reader that knows its place from before, or from another node, keeps it while the queue is not there;
// what lies below it is never handed out.
func TestAStreamBeforeItsQueue(t *testing.T) {
	for _, at := range []int64{0, 7} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		n := &newborn{}
		s := &getStream{ctx: ctx}
		err := rpc.NewMessage(n, nil, 1<<20).GetStream(&storagev1.GetStreamRequest{Topic: "T", QueueOffset: at}, s)
		if got := n.gets[len(n.gets)-1].QueueOffset; len(n.gets) != 2 || got != at {
			t.Errorf("from %d on: asked %d times, at last from %d on", at, len(n.gets), got)
		}
		if at == 0 && len(s.sent) != 1 || at > 0 && errdefs.ReasonOf(err) != "QUEUE_OFFSET_OUTSIDE" {
			t.Errorf("from %d on: %v came, then %v", at, s.sent, err)
		}
	}
}
