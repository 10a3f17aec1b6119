package clienttest

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

var errStopping = errdefs.New(errdefs.Unavailable, "SERVER_STOPPING", "the server is stopping")

// Put implements MessageService.
func (s *Storage) Put(_ context.Context, req *storagev1.PutRequest) (*storagev1.PutResponse, error) {
	r, err := s.put(req.GetMessage())
	if err != nil {
		return nil, err
	}
	r.AckedSlaves = req.GetAcks()
	return &storagev1.PutResponse{Result: r}, nil
}

// PutBatch implements MessageService.
func (s *Storage) PutBatch(_ context.Context, req *storagev1.PutBatchRequest) (*storagev1.PutBatchResponse, error) {
	resp := &storagev1.PutBatchResponse{}
	for _, m := range req.GetMessages() {
		r, err := s.put(m)
		if err != nil {
			return nil, err
		}
		resp.Results = append(resp.Results, r)
	}
	return resp, nil
}

// PutStream implements MessageService: one answer a request. What is wrong with a message is its status.
func (s *Storage) PutStream(stream grpc.BidiStreamingServer[storagev1.PutStreamRequest, storagev1.PutStreamResponse]) error {
	next := uint64(1)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if req.GetSequence() != next {
			return errdefs.Invalid("sequence", "%d does not follow, expected %d", req.GetSequence(), next)
		}
		resp := &storagev1.PutStreamResponse{}
		for _, m := range req.GetMessages() {
			r, err := s.put(m)
			switch errdefs.ClassOf(err) {
			case errdefs.FailedPrecondition:
				r, err = &storagev1.PutResult{Status: storagev1.PutStatus_PUT_STATUS_NOT_MASTER, Offset: -1, Reason: err.Error()}, nil
			case errdefs.InvalidArgument:
				r, err = &storagev1.PutResult{Status: storagev1.PutStatus_PUT_STATUS_MESSAGE_ILLEGAL, Offset: -1, Reason: err.Error()}, nil
			default:
			}
			if err != nil {
				// What was stored is answered before the stream ends.
				resp.Sequence = next - 1 + uint64(len(resp.GetResults()))
				return errors.Join(err, stream.Send(resp))
			}
			resp.Results = append(resp.Results, r)
		}
		next += uint64(len(req.GetMessages()))
		resp.Sequence = next - 1
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// read returns the messages of a queue from an offset, at most limit, and where to go on.
func (s *Storage) read(topic string, queue int32, from int64, limit int, filter string) (status storagev1.GetStatus, ms []*storagev1.StoredMessage, next, end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, ok := s.lists[queueKey(topic, queue)]
	end = int64(len(list))
	switch {
	case !ok:
		return storagev1.GetStatus_GET_STATUS_NO_QUEUE, nil, 0, 0
	case from > end:
		return storagev1.GetStatus_GET_STATUS_OFFSET_OVERFLOW, nil, end, end
	case from == end:
		return storagev1.GetStatus_GET_STATUS_NO_NEW_MESSAGE, nil, from, end
	}
	tags := strings.Split(filter, "||")
	for next = from; next < end && len(ms) < limit; next++ {
		if m := list[next]; filter == "" || filter == "*" || slices.Contains(tags, m.GetMessage().GetTag()) {
			ms = append(ms, m)
		}
	}
	if len(ms) == 0 {
		return storagev1.GetStatus_GET_STATUS_NO_MATCHED_MESSAGE, nil, next, end
	}
	return storagev1.GetStatus_GET_STATUS_FOUND, ms, next, end
}

func orDefault(n int32) int {
	if n <= 0 {
		return 32
	}
	return int(n)
}

// Get implements MessageService.
func (s *Storage) Get(_ context.Context, req *storagev1.GetRequest) (*storagev1.GetResponse, error) {
	status, ms, next, end := s.read(req.GetTopic(), req.GetQueueId(), req.GetQueueOffset(), orDefault(req.GetMaxMessages()), req.GetTagFilter())
	return &storagev1.GetResponse{Status: status, Messages: ms, NextQueueOffset: next, MaxQueueOffset: end}, nil
}

// GetStream implements MessageService.
func (s *Storage) GetStream(req *storagev1.GetStreamRequest, stream grpc.ServerStreamingServer[storagev1.GetStreamResponse]) error {
	s.mu.Lock()
	onTail := s.onTail
	s.mu.Unlock()
	if onTail != nil {
		if err := onTail(req); err != nil {
			return err
		}
	}
	for at := req.GetQueueOffset(); ; {
		s.mu.Lock()
		changed, down := s.changed, s.down
		s.mu.Unlock()
		status, ms, next, end := s.read(req.GetTopic(), req.GetQueueId(), at, orDefault(req.GetMaxMessages()), req.GetTagFilter())
		if status == storagev1.GetStatus_GET_STATUS_OFFSET_OVERFLOW {
			return errdefs.New(errdefs.OutOfRange, "QUEUE_OFFSET_OUTSIDE", "the queue offset is outside of the queue").With("max", end)
		}
		if len(ms) > 0 {
			if err := stream.Send(&storagev1.GetStreamResponse{Messages: ms, NextQueueOffset: next, MaxQueueOffset: end}); err != nil {
				return err
			}
		}
		if status != storagev1.GetStatus_GET_STATUS_NO_QUEUE && next > at {
			at = next
			continue
		}
		select {
		case <-changed:
		case <-down:
			return errStopping
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// GetByOffset implements MessageService.
func (s *Storage) GetByOffset(_ context.Context, req *storagev1.GetByOffsetRequest) (*storagev1.GetByOffsetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.lists {
		for _, m := range list {
			if m.GetOffset() == req.GetOffset() {
				return &storagev1.GetByOffsetResponse{Message: m}, nil
			}
		}
	}
	return nil, errdefs.New(errdefs.InvalidArgument, "NO_RECORD", "no record starts at this offset").With("offset", req.GetOffset())
}

// ListQueues implements MessageService, two queues a page unless asked otherwise.
func (s *Storage) ListQueues(_ context.Context, req *storagev1.ListQueuesRequest) (*storagev1.ListQueuesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*storagev1.Queue
	for key, list := range s.lists {
		topic, id, _ := strings.Cut(key, " ")
		n, err := strconv.ParseInt(id, 10, 32)
		if err == nil && (req.GetTopic() == "" || req.GetTopic() == topic) {
			all = append(all, &storagev1.Queue{Topic: topic, QueueId: int32(n), MaxQueueOffset: int64(len(list))})
		}
	}
	slices.SortFunc(all, func(a, b *storagev1.Queue) int {
		if c := strings.Compare(a.GetTopic(), b.GetTopic()); c != 0 {
			return c
		}
		return int(a.GetQueueId() - b.GetQueueId())
	})
	skip, _ := strconv.Atoi(req.GetPageToken()) // "" is 0
	all = all[min(skip, len(all)):]
	size := int(req.GetPageSize())
	if size == 0 {
		size = 2
	}
	resp := &storagev1.ListQueuesResponse{Queues: all[:min(size, len(all))]}
	if len(all) > size {
		resp.NextPageToken = strconv.Itoa(skip + size)
	}
	return resp, nil
}

func (s *Storage) answer() *storagev1.StatusResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.first + int64(len(s.log))
	st := &storagev1.StatusResponse{
		Cluster: "DefaultCluster", BrokerName: "broker-a", Role: storagev1.Role_ROLE_SYNC_MASTER, Open: s.master, Version: "test",
		Watermarks: &storagev1.Watermarks{FirstOffset: s.first, WrittenOffset: end, FlushedOffset: end, ReadableOffset: end, DispatchedOffset: end, AckedOffset: end},
		Epochs:     []*storagev1.Epoch{{Epoch: s.epoch}}, Whole: true, FileSize: 1 << 30,
	}
	if !s.master {
		st.Role, st.NodeId, st.Reason, st.Remedy = storagev1.Role_ROLE_SLAVE, 1, "SLAVE", "put to the master"
		st.Upstream = &storagev1.UpstreamStatus{Address: s.named}
	}
	if s.status != nil {
		s.status(st)
	}
	return st
}

// Status implements StorageAdminService.
func (s *Storage) Status(context.Context, *storagev1.StatusRequest) (*storagev1.StatusResponse, error) {
	return s.answer(), nil
}

// WatchStatus implements StorageAdminService.
func (s *Storage) WatchStatus(req *storagev1.WatchStatusRequest, stream grpc.ServerStreamingServer[storagev1.WatchStatusResponse]) error {
	every := time.Second
	if d := req.GetInterval(); d != nil {
		every = d.AsDuration()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	for {
		if err := stream.Send(&storagev1.WatchStatusResponse{Status: s.answer()}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-down:
			return errStopping
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// bytes returns a copy of [from, to) of the log; to 0 is its end.
func (s *Storage) bytes(from, to int64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.first + int64(len(s.log))
	if to == 0 {
		to = end
	}
	if from < s.first || from > to || to > end {
		return nil, errOutside.With("offset", from).With("first", s.first).With("end", end)
	}
	return slices.Clone(s.log[from-s.first : to-s.first]), nil
}

// Range implements StorageAdminService.
func (s *Storage) Range(req *storagev1.RangeRequest, stream grpc.ServerStreamingServer[storagev1.RangeResponse]) error {
	b, err := s.bytes(req.GetFromOffset(), req.GetToOffset())
	if err != nil {
		return err
	}
	at := req.GetFromOffset()
	for chunk := range slices.Chunk(b, 1<<20) {
		if err := stream.Send(&storagev1.RangeResponse{Offset: at, Data: chunk}); err != nil {
			return err
		}
		at += int64(len(chunk))
	}
	return nil
}

// Checksum implements StorageAdminService.
func (s *Storage) Checksum(_ context.Context, req *storagev1.ChecksumRequest) (*storagev1.ChecksumResponse, error) {
	stretch := req.GetStretchSize()
	if stretch == 0 {
		stretch = 1 << 20
	}
	if stretch < 4<<10 || stretch > 64<<20 {
		return nil, errdefs.Invalid("stretch_size", "%d is not within 4096 and 67108864", stretch)
	}
	b, err := s.bytes(req.GetFromOffset(), req.GetToOffset())
	if err != nil {
		return nil, err
	}
	b = b[:min(int64(len(b)), 65536*stretch)]
	resp := &storagev1.ChecksumResponse{FromOffset: req.GetFromOffset(), ToOffset: req.GetFromOffset() + int64(len(b)), StretchSize: stretch}
	for piece := range slices.Chunk(b, int(stretch)) {
		resp.Checksums = append(resp.Checksums, crc32.Checksum(piece, crc32.MakeTable(crc32.Castagnoli)))
	}
	return resp, nil
}

// FlushNow implements StorageAdminService.
func (s *Storage) FlushNow(context.Context, *storagev1.FlushNowRequest) (*storagev1.FlushNowResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &storagev1.FlushNowResponse{FlushedOffset: s.first + int64(len(s.log))}, nil
}

// SearchOffset implements MessageService.
func (s *Storage) SearchOffset(_ context.Context, req *storagev1.SearchOffsetRequest) (*storagev1.SearchOffsetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.lists[queueKey(req.GetTopic(), req.GetQueueId())]
	at := slices.IndexFunc(list, func(m *storagev1.StoredMessage) bool { return m.GetStoreTimestamp() >= req.GetStoreTimestamp() })
	if at < 0 {
		at = len(list)
	}
	return &storagev1.SearchOffsetResponse{QueueOffset: int64(at), MaxQueueOffset: int64(len(list))}, nil
}
