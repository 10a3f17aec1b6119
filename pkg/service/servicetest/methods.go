package servicetest

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

	"github.com/tandemlog/tandem/pkg/testkit"
)

// EveryMethod calls every method of Tandem's that reflection shows at conn, the services named at least: with nothing filled in,
// and with every number negative. Each must answer, or say in a typed error why not; node says in a failure whom it was.
func EveryMethod(t testing.TB, conn *grpc.ClientConn, node string, services ...string) {
	t.Helper()
	shown := reflected(t, conn)
	for _, want := range services {
		if shown[want] == nil {
			t.Errorf("reflection does not show %s", want)
		}
	}
	for name, s := range shown {
		if !strings.HasPrefix(name, "tandem.") {
			continue
		}
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			what := string(m.Name()) + " on " + node + " with a request that is "
			empty, negative := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Input())
			negate(negative)
			_, _ = Typed(t, what+"empty", call(t, conn, m, empty))
			_, _ = Typed(t, what+"negative", call(t, conn, m, negative))
		}
	}
}

// Typed fails the test unless err is nil or one of Tandem's errors, and returns its details.
func Typed(t testing.TB, what string, err error) (info *errdetails.ErrorInfo, fields []string) {
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

// reflected asks a server for its services as grpcurl does, and builds them from what it answers alone.
func reflected(t testing.TB, conn *grpc.ClientConn) map[string]protoreflect.ServiceDescriptor {
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
func call(t testing.TB, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, req *dynamicpb.Message) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	path, resp := "/"+string(m.Parent().FullName())+"/"+string(m.Name()), dynamicpb.NewMessage(m.Output())
	if !m.IsStreamingServer() && !m.IsStreamingClient() {
		return conn.Invoke(ctx, path, req, resp) //nolint:wrapcheck // a test's
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, path)
	if err == nil {
		err = s.SendMsg(req)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		err = s.RecvMsg(resp)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err //nolint:wrapcheck // a test's
}
