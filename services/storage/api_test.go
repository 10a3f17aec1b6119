package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// reflected asks a server for its services as grpcurl does, and builds them from what it answers alone.
func reflected(t *testing.T, conn *grpc.ClientConn) map[string]protoreflect.ServiceDescriptor {
	t.Helper()
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil || resp.GetErrorResponse() != nil {
			t.Fatalf("reflection of %v: %v, %v", req, resp.GetErrorResponse(), err)
		}
		return resp
	}
	list := ask(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
	out := map[string]protoreflect.ServiceDescriptor{}
	set := &descriptorpb.FileDescriptorSet{}
	have := map[string]bool{}
	var names []string
	for _, s := range list.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
		resp := ask(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: s.GetName()},
		})
		for _, raw := range resp.GetFileDescriptorResponse().GetFileDescriptorProto() {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, f); err != nil {
				t.Fatal(err)
			}
			if !have[f.GetName()] {
				have[f.GetName()] = true
				set.File = append(set.File, f)
			}
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("the reflection stream ends with %v", err)
	}
	reg, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		d, err := reg.FindDescriptorByName(protoreflect.FullName(name))
		if errors.Is(err, protoregistry.NotFound) {
			t.Fatalf("%s is listed and not described", name)
		}
		if s, ok := d.(protoreflect.ServiceDescriptor); ok {
			out[name] = s
		}
	}
	return out
}

// typed fails t unless err is nil or one of Tandem's errors, and returns its details.
func typed(t *testing.T, what string, err error) (info *errdetails.ErrorInfo, fields []string) {
	t.Helper()
	if err == nil {
		return nil, nil
	}
	st := status.Convert(err)
	if slices.Contains([]codes.Code{codes.Unimplemented, codes.Internal, codes.Unknown}, st.Code()) {
		t.Errorf("%s: %v", what, err)
	}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				fields = append(fields, v.GetField())
			}
		}
	}
	if info.GetDomain() != "tandem" || info.GetReason() == "" {
		t.Errorf("%s: an error without a reason: %v", what, err)
	}
	if st.Code() == codes.InvalidArgument && len(fields) == 0 && info.GetReason() == "INVALID_ARGUMENT" {
		t.Errorf("%s: no field is named: %v", what, err)
	}
	return info, fields
}

// TestEveryMethodAnswers calls every method that reflection shows on a master and on a slave: with nothing filled in, and
// with every number negative. Each answers, or says in a typed error why not.
func TestEveryMethodAnswers(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(1)
	g[0].fill(20)
	for _, n := range g {
		services := reflected(t, n.conn)
		for _, want := range []string{
			"tandem.storage.v1.MessageService", "tandem.storage.v1.StorageAdminService", "tandem.storage.v1.ReplicationService",
			"grpc.health.v1.Health",
		} {
			if services[want] == nil {
				t.Errorf("reflection does not show %s", want)
			}
		}
		for name, s := range services {
			if !strings.HasPrefix(name, "tandem.") {
				continue
			}
			for i := range s.Methods().Len() {
				m := s.Methods().Get(i)
				empty := dynamicpb.NewMessage(m.Input())
				negative := dynamicpb.NewMessage(m.Input())
				negate(negative)
				for what, req := range map[string]*dynamicpb.Message{"empty": empty, "negative": negative} {
					call(t, n, m, what, req)
				}
			}
		}
	}
	same(t, g[0], g[1])
}

// negate sets every number of m to -1.
func negate(m *dynamicpb.Message) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.IsList() || f.IsMap():
		case f.Kind() == protoreflect.Int32Kind:
			m.Set(f, protoreflect.ValueOfInt32(-1))
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(-1))
		case f.Kind() == protoreflect.MessageKind:
			inner := dynamicpb.NewMessage(f.Message())
			negate(inner)
			m.Set(f, protoreflect.ValueOfMessage(inner))
		}
	}
}

// call makes one call and takes its first answer.
func call(t *testing.T, n *node, m protoreflect.MethodDescriptor, what string, req *dynamicpb.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	resp := dynamicpb.NewMessage(m.Output())
	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	what = string(m.Name()) + " with a request that is " + what + " on node " + n.cfg.BrokerRole
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		_, _ = typed(t, what, n.conn.Invoke(ctx, path, req, resp))
		return
	}
	if m.Name() == "GetStream" && strings.Contains(what, "empty") {
		return // needs a topic, see below
	}
	s, err := n.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, path)
	if err == nil {
		err = s.SendMsg(req)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		err = s.RecvMsg(resp)
	}
	if !errors.Is(err, io.EOF) {
		_, _ = typed(t, what, err)
	}
}

// TestReadingAndAdministering calls what a healthy pair answers with results.
func TestReadingAndAdministering(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(1)
	queue := int32(3)
	var last *storagev1.PutResult
	for i := range 10 {
		tag := []string{"TagA", "TagB"}[i%2]
		last = g[0].put([]byte{byte(i)}, func(r *storagev1.PutRequest) { r.Message.Tag, r.Message.QueueId = tag, &queue })
	}
	end := g[0].end64()
	for _, n := range g {
		n.awaitEnd(end)
		ctx, msg := t.Context(), n.message()
		got, err := msg.Get(ctx, &storagev1.GetRequest{Topic: "TopicTest", QueueId: 3, TagFilter: "TagB"})
		if err != nil || len(got.GetMessages()) != 5 || got.GetNextQueueOffset() != 10 || got.GetMessages()[4].GetQueueOffset() != 9 {
			t.Errorf("get of a tag: %v, %v", got, err)
		}
		byOffset, err := msg.GetByOffset(ctx, &storagev1.GetByOffsetRequest{Offset: last.GetOffset()})
		if err != nil || !slices.Equal(byOffset.GetMessage().GetMessage().GetBody(), []byte{9}) {
			t.Errorf("get by offset: %v, %v", byOffset, err)
		}
		list, err := msg.ListQueues(ctx, &storagev1.ListQueuesRequest{Topic: "TopicTest"})
		if err != nil || len(list.GetQueues()) != 1 || list.GetQueues()[0].GetMaxQueueOffset() != 10 {
			t.Errorf("queues: %v, %v", list, err)
		}
		found, err := msg.SearchOffset(ctx, &storagev1.SearchOffsetRequest{Topic: "TopicTest", QueueId: list.GetQueues()[0].GetQueueId(), StoreTimestamp: 1})
		if err != nil || found.GetQueueOffset() != 0 || found.GetMaxQueueOffset() != 10 {
			t.Errorf("search: %v, %v", found, err)
		}
		sums, err := n.admin().Checksum(ctx, &storagev1.ChecksumRequest{})
		if err != nil || sums.GetToOffset() != end || len(sums.GetChecksums()) != 1 {
			t.Errorf("checksums: %v, %v", sums, err)
		}
		flushed, err := n.admin().FlushNow(ctx, &storagev1.FlushNowRequest{})
		if err != nil || flushed.GetFlushedOffset() != end {
			t.Errorf("flush: %v, %v", flushed, err)
		}
	}
	// A stream that waits gets what comes later, on the slave too.
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, n := range g {
		s, err := n.message().GetStream(ctx, &storagev1.GetStreamRequest{Topic: "TopicTest", QueueId: 3, QueueOffset: 10})
		if err != nil {
			t.Fatal(err)
		}
		first := make(chan *storagev1.GetStreamResponse, 1)
		go func() {
			defer close(first)
			if r, err := s.Recv(); err == nil {
				first <- r
			}
		}()
		select {
		case r := <-first:
			t.Errorf("something came before it was put: %v", r)
		case <-time.After(20 * time.Millisecond):
		}
		defer func() {
			r := <-first
			if len(r.GetMessages()) == 0 || r.GetMessages()[0].GetQueueOffset() != 10 {
				t.Errorf("the stream of %s brought %v", n.cfg.BrokerRole, r)
			}
		}()
	}
	g[0].put([]byte("later"), func(r *storagev1.PutRequest) { r.Message.QueueId = &queue })
}
