package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

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
	g := group(t, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().create("TopicA")
	same(t, g...)
	for _, n := range g {
		services := reflected(t, n.conn)
		for _, want := range []string{"ConfigSyncService", "TopicService", "SubscriptionGroupService", "OffsetService", "ConfigAdminService"} {
			if services["tandem.configsync.v1."+want] == nil {
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
	same(t, g...)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp := dynamicpb.NewMessage(m.Output())
	path := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	what = string(m.Name()) + " with a request that is " + what + " on node " + n.cfg.BrokerRole
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		_, _ = typed(t, what, n.conn.Invoke(ctx, path, req, resp))
		return
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
