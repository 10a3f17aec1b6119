package rpc

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

// Store is the put rule and the get rule.
type Store interface {
	Begin(ctx context.Context, m *store.Message, w store.Wait) (store.Pending, error)
	Finish(ctx context.Context, p *store.Pending) (store.Result, error)
	PutBatch(ctx context.Context, ms []store.Message, w store.Wait) ([]store.Result, error)
	Reader
}

// Reader is the get rule.
type Reader interface {
	Get(ctx context.Context, g *store.Get) (store.GetResult, error)
	WaitNew(ctx context.Context, topic string, queueID int32, queueOffset int64, dispatched func() *watermark.Mark) error
	GetByOffset(offset int64, size int) (store.Record, error)
	ListQueues(topic string, after store.QueueInfo, below int64, limit int) ([]store.QueueInfo, error)
	SearchOffset(topic string, queueID int32, storeTime int64) (int64, store.QueueInfo, error)
}

// Message implements MessageService.
type Message struct {
	storagev1.UnimplementedMessageServiceServer

	store      Store
	dispatched func() *watermark.Mark
	maxReply   int
}

// Room that a reply keeps for everything that is not record bytes, bytes.
const replyRoom = 64 << 10

// NewMessage makes the service. dispatched is the mark of what is built into queues; maxReply is the largest reply, bytes.
func NewMessage(s Store, dispatched func() *watermark.Mark, maxReply int) *Message {
	return &Message{store: s, dispatched: dispatched, maxReply: maxReply}
}

// Put implements MessageService.
func (s *Message) Put(ctx context.Context, req *storagev1.PutRequest) (*storagev1.PutResponse, error) {
	w, err := waitOf(req.Acks, req.GetTimeout())
	if err != nil {
		return nil, err
	}
	m, err := messageOf(callerOf(ctx), "message", req.GetMessage())
	if err != nil {
		return nil, err
	}
	p, err := s.store.Begin(ctx, &m, w)
	if err != nil {
		return nil, underField("message", err)
	}
	r, err := s.store.Finish(ctx, &p)
	if err != nil {
		return nil, err
	}
	return &storagev1.PutResponse{Result: resultOf(&r)}, nil
}

// PutBatch implements MessageService.
func (s *Message) PutBatch(ctx context.Context, req *storagev1.PutBatchRequest) (*storagev1.PutBatchResponse, error) {
	w, err := waitOf(req.Acks, req.GetTimeout())
	if err != nil {
		return nil, err
	}
	ms, from := make([]store.Message, len(req.GetMessages())), callerOf(ctx)
	for i, m := range req.GetMessages() {
		if ms[i], err = messageOf(from, "messages", m); err != nil {
			return nil, withMessage(err, i)
		}
	}
	rs, err := s.store.PutBatch(ctx, ms, w)
	if err != nil {
		return nil, err
	}
	resp := &storagev1.PutBatchResponse{Results: make([]*storagev1.PutResult, len(rs))}
	for i := range rs {
		resp.Results[i] = resultOf(&rs[i])
	}
	return resp, nil
}

// Get implements MessageService.
func (s *Message) Get(ctx context.Context, req *storagev1.GetRequest) (*storagev1.GetResponse, error) {
	g, err := s.getOf(req.GetTopic(), req.GetQueueId(), req.GetQueueOffset(), req.GetTagFilter(), req.GetMaxMessages(), req.GetMaxBytes())
	if err != nil {
		return nil, err
	}
	r, err := s.store.Get(ctx, g)
	if err != nil {
		return nil, err
	}
	return &storagev1.GetResponse{
		Status: storagev1.GetStatus(r.Status), Messages: storedOf(r.Records),
		NextQueueOffset: r.Next, MinQueueOffset: r.Min, MaxQueueOffset: r.Max,
	}, nil
}

// GetStream implements MessageService.
func (s *Message) GetStream(req *storagev1.GetStreamRequest, stream grpc.ServerStreamingServer[storagev1.GetStreamResponse]) error {
	g, err := s.getOf(req.GetTopic(), req.GetQueueId(), req.GetQueueOffset(), req.GetTagFilter(), req.GetMaxMessages(), req.GetMaxBytes())
	if err != nil {
		return err
	}
	ctx := stream.Context()
	for {
		r, err := s.store.Get(ctx, g)
		if err != nil {
			return err
		}
		switch r.Status {
		case store.Found:
			err = stream.Send(&storagev1.GetStreamResponse{
				Messages: storedOf(r.Records), NextQueueOffset: r.Next, MaxQueueOffset: r.Max,
			})
			if err != nil {
				return err
			}
		case store.OffsetTooSmall, store.OffsetOverflow:
			return errOffsetOutside.With("queue_offset", g.QueueOffset).With("min", r.Min).With("max", r.Max)
		case store.NoMatchedMessage, store.NoNewMessage, store.NoQueue:
		}
		if r.Status != store.NoQueue {
			g.QueueOffset = r.Next
		}
		if g.QueueOffset < r.Max {
			continue
		}
		// Without a queue the first message is waited for: then it shows whether it reaches to where the caller is.
		if err := s.store.WaitNew(ctx, g.Topic, g.QueueID, min(g.QueueOffset, r.Max), s.dispatched); err != nil {
			return err
		}
	}
}

var errOffsetOutside = errdefs.New(errdefs.OutOfRange, "QUEUE_OFFSET_OUTSIDE", "the queue offset is outside of the queue").
	WithField("queue_offset").WithRemedy("read between min and max")

// GetByOffset implements MessageService.
func (s *Message) GetByOffset(_ context.Context, req *storagev1.GetByOffsetRequest) (*storagev1.GetByOffsetResponse, error) {
	if req.GetSize() < 0 {
		return nil, errdefs.Invalid("size", "%d is negative", req.GetSize())
	}
	r, err := s.store.GetByOffset(req.GetOffset(), int(req.GetSize()))
	if err != nil {
		return nil, err
	}
	if len(r.Bytes) > s.maxReply-replyRoom {
		return nil, store.ErrTooLargeForReply.With("size", len(r.Bytes)).With("limit", s.maxReply-replyRoom)
	}
	return &storagev1.GetByOffsetResponse{Message: storedOf([]store.Record{r})[0]}, nil
}

// Page sizes of lists.
const (
	defaultPage = 1000
	maxPage     = 10000
)

// ListQueues implements MessageService.
func (s *Message) ListQueues(_ context.Context, req *storagev1.ListQueuesRequest) (*storagev1.ListQueuesResponse, error) {
	size, err := pageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	after, err := parseQueueToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	if req.GetBelowOffset() < 0 {
		return nil, errdefs.Invalid("below_offset", "%d is negative", req.GetBelowOffset())
	}
	qs, err := s.store.ListQueues(req.GetTopic(), after, req.GetBelowOffset(), size+1)
	if err != nil {
		return nil, err
	}
	resp := &storagev1.ListQueuesResponse{}
	if len(qs) > size {
		qs = qs[:size]
		resp.NextPageToken = queueToken(qs[size-1])
	}
	for _, q := range qs {
		resp.Queues = append(resp.Queues, &storagev1.Queue{
			Topic: q.Topic, QueueId: q.ID, MinQueueOffset: q.Min, MaxQueueOffset: q.Max,
		})
	}
	return resp, nil
}

// SearchOffset implements MessageService.
func (s *Message) SearchOffset(_ context.Context, req *storagev1.SearchOffsetRequest) (*storagev1.SearchOffsetResponse, error) {
	switch {
	case req.GetTopic() == "":
		return nil, errdefs.Invalid("topic", "is empty")
	case req.GetQueueId() < 0:
		return nil, errdefs.Invalid("queue_id", "%d is negative", req.GetQueueId())
	case req.GetStoreTimestamp() < 0:
		return nil, errdefs.Invalid("store_timestamp", "%d is negative", req.GetStoreTimestamp())
	}
	offset, q, err := s.store.SearchOffset(req.GetTopic(), req.GetQueueId(), req.GetStoreTimestamp())
	if err != nil {
		return nil, err
	}
	return &storagev1.SearchOffsetResponse{QueueOffset: offset, MinQueueOffset: q.Min, MaxQueueOffset: q.Max}, nil
}

// getOf checks a read. Bounds are filled in where the caller left them 0.
func (s *Message) getOf(topic string, queue int32, offset int64, filter string, messages, maxBytes int32) (*store.Get, error) {
	g := &store.Get{Topic: topic, QueueID: queue, QueueOffset: offset, MaxMessages: 32, MaxBytes: 256 << 10, HardBytes: s.maxReply - replyRoom}
	switch {
	case topic == "":
		return nil, errdefs.Invalid("topic", "is empty")
	case queue < 0:
		return nil, errdefs.Invalid("queue_id", "%d is negative", queue)
	case offset < 0:
		return nil, errdefs.Invalid("queue_offset", "%d is negative", offset)
	case messages < 0 || messages > 1024:
		return nil, errdefs.Invalid("max_messages", "%d is not within 0 and 1024", messages)
	case maxBytes < 0:
		return nil, errdefs.Invalid("max_bytes", "%d is negative", maxBytes)
	}
	if messages > 0 {
		g.MaxMessages = int(messages)
	}
	if maxBytes > 0 {
		g.MaxBytes = int(maxBytes)
	}
	g.MaxBytes = min(g.MaxBytes, g.HardBytes)
	f, err := message.ParseTagFilter(filter)
	if err != nil {
		return nil, underField("tag_filter", err)
	}
	g.Filter = f
	return g, nil
}

// waitOf checks what a put asks to wait for.
func waitOf(acks *int32, timeout *durationpb.Duration) (store.Wait, error) {
	w := store.Wait{Acks: -1}
	if acks != nil {
		if *acks < 0 {
			return w, errdefs.Invalid("acks", "%d is negative", *acks)
		}
		w.Acks = int(*acks)
	}
	if timeout != nil {
		if err := timeout.CheckValid(); err != nil {
			return w, errdefs.Invalid("timeout", "%v", err)
		}
		if w.Timeout = timeout.AsDuration(); w.Timeout <= 0 {
			return w, errdefs.Invalid("timeout", "%v is not above 0", w.Timeout)
		}
	}
	return w, nil
}

// underField prefixes the field of a validation error with the field of the request that it lies in.
func underField(field string, err error) error {
	e := errdefs.As(err)
	if e == nil || e.Field == "" {
		return err
	}
	if e.Field == "acks" || e.Field == "timeout" || e.Field == field {
		return err
	}
	return e.WithField(field + "." + e.Field)
}

func withMessage(err error, i int) error {
	if e := errdefs.As(err); e != nil {
		return e.With("message", i)
	}
	return err
}

// bornHost is the address of the caller, the zero value when it has none (in-process connections).
func bornHost(ctx context.Context) netip.AddrPort {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return netip.AddrPort{}
	}
	a, ok := p.Addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// pageSize returns the size of a page.
func pageSize(n int32) (int, error) {
	if n < 0 {
		return 0, errdefs.Invalid("page_size", "%d is negative", n)
	}
	if n == 0 {
		return defaultPage, nil
	}
	return min(int(n), maxPage), nil
}

func validUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
