package grpcx_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

type bidi = grpc.BidiStreamingServer[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]

// open opens n streams and waits until each one's handler runs.
func open(t *testing.T, client pb.TestServiceClient, n int) []grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse] {
	t.Helper()
	var out []grpc.BidiStreamingClient[pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse]
	for range n {
		ss, err := client.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := ss.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ss.Recv(); err != nil {
			t.Fatal(err)
		}
		out = append(out, ss)
	}
	return out
}

// T24.5 (W05): ten open streams whose handlers wait in Recv and do not see their context do not hold up the end.
func TestT24_StreamsDoNotHoldUpTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		f := start(t, grpcx.ServerOptions{}, &service{stream: func(ss bidi) error {
			running.Add(1)
			defer running.Add(-1)
			return (&service{}).FullDuplexCall(ss)
		}}, nil)
		client, conn := f.dial(t, grpcx.ClientOptions{})
		streams := open(t, client, 10)
		began := time.Now()
		if err := f.end(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the end took %v", took)
		}
		if n := running.Load(); n != 0 {
			t.Errorf("%d handlers outlived Serve", n)
		}
		for _, ss := range streams {
			if _, err := ss.Recv(); !errors.Is(err, grpcx.ErrDraining) {
				t.Errorf("a stream ended with %v", err)
			}
		}
		_ = conn.Close()
	})
}

// A handler that watches its context is told why and ends at once, with its last answer sent.
func TestStreamsAreAskedToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, grpcx.ServerOptions{}, &service{stream: func(ss bidi) error {
			if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
			<-ss.Context().Done()
			if !errors.Is(context.Cause(ss.Context()), grpcx.ErrDraining) {
				t.Errorf("cause %v", context.Cause(ss.Context()))
			}
			if err := ss.Send(&pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: []byte("last")}}); err != nil {
				return err
			}
			return ss.Context().Err()
		}}, nil)
		client, conn := f.dial(t, grpcx.ClientOptions{})
		ss := open(t, client, 1)[0]
		began := time.Now()
		if err := f.end(); err != nil || time.Since(began) > 0 {
			t.Errorf("ended with %v after %v", err, time.Since(began))
		}
		if r, err := ss.Recv(); err != nil || string(r.GetPayload().GetBody()) != "last" {
			t.Errorf("last answer: %v %v", r, err)
		}
		if _, err := ss.Recv(); !errors.Is(err, grpcx.ErrDraining) {
			t.Errorf("ended with %v", err)
		}
		_ = conn.Close()
	})
}

// Unary calls under way are finished; those that take longer than the budget see their context end.
func TestUnaryCallsAreFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{})
		f := start(t, grpcx.ServerOptions{}, &service{unary: func(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			entered <- struct{}{}
			select {
			case <-time.After(time.Duration(r.GetResponseSize()) * time.Second):
				return &pb.SimpleResponse{}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}, nil)
		client, conn := f.dial(t, grpcx.ClientOptions{Timeout: -1})
		short, long := make(chan error, 1), make(chan error, 1)
		go func() { _, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 4}); short <- err }()
		<-entered
		go func() { _, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{ResponseSize: 100}); long <- err }()
		<-entered
		began := time.Now()
		if err := f.end(); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("ended with %v after %v", err, time.Since(began))
		}
		if err := <-short; err != nil {
			t.Errorf("the short call: %v", err)
		}
		if err := <-long; errdefs.ClassOf(err) != errdefs.Unavailable {
			t.Errorf("the long call: %v", err)
		}
		_ = conn.Close()
	})
}

// W06: Serve does not say that it is done while a handler runs.
func TestServeNamesHandlersThatWillNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, entered := make(chan struct{}), make(chan struct{})
		f := start(t, grpcx.ServerOptions{}, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			close(entered)
			<-release
			return &pb.SimpleResponse{}, nil
		}}, nil)
		client, conn := f.dial(t, grpcx.ClientOptions{Timeout: -1})
		done := make(chan struct{})
		go func() { defer close(done); _, _ = client.UnaryCall(t.Context(), &pb.SimpleRequest{}) }()
		<-entered
		began := time.Now()
		err := f.end()
		if !errors.Is(err, grpcx.ErrHandlersRunning) || !strings.Contains(err.Error(), "UnaryCall") {
			t.Errorf("ended with %v", err)
		}
		if took := time.Since(began); took != 7500*time.Millisecond {
			t.Errorf("took %v", took)
		}
		close(release)
		<-done
		_ = conn.Close()
	})
}

// T24.1: streams that end well, by an error, or because the client leaves, leave nothing behind.
func TestT24_StreamsLeaveNothingBehind(t *testing.T) {
	f := start(t, grpcx.ServerOptions{}, &service{stream: func(ss bidi) error {
		r, err := ss.Recv()
		if err != nil {
			return err
		}
		switch r.GetResponseStatus().GetCode() {
		case 0:
			return nil
		case 1:
			return errdefs.New(errdefs.Aborted, "HALF", "half is all you get")
		}
		<-ss.Context().Done()
		return ss.Context().Err()
	}}, nil)
	client, conn := f.dial(t, grpcx.ClientOptions{})
	before := 0
	for i := range 1000 {
		if i == 10 {
			before = runtime.NumGoroutine()
		}
		ctx, cancel := context.WithCancel(t.Context())
		ss, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		kind := int32(i % 3)
		if err := ss.Send(&pb.StreamingOutputCallRequest{ResponseStatus: &pb.EchoStatus{Code: kind}}); err != nil {
			t.Fatal(err)
		}
		if kind == 2 {
			cancel()
		}
		_, err = ss.Recv()
		if want := []errdefs.Class{errdefs.Unknown, errdefs.Aborted, errdefs.Canceled}[kind]; errdefs.ClassOf(err) != want || (kind == 0 && err != io.EOF) { //nolint:errorlint // bare
			t.Fatalf("kind %d: %v", kind, err)
		}
		cancel()
	}
	if err := f.end(); err != nil { // waits for the handlers
		t.Fatal(err)
	}
	_ = conn.Close()
	if after := runtime.NumGoroutine(); after > before+5 {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

// T24.2: both ends send 20 MB before they read; the call ends by its deadline and the server by its budget.
func TestT24_BothEndsSendBeforeTheyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &pb.Payload{Body: make([]byte, 100<<10)}
		f := start(t, grpcx.ServerOptions{}, &service{stream: func(ss bidi) error {
			for range 200 {
				if err := ss.Send(&pb.StreamingOutputCallResponse{Payload: body}); err != nil {
					return err
				}
			}
			return nil
		}}, nil)
		client, conn := f.dial(t, grpcx.ClientOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ss, err := client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = ss.Send(&pb.StreamingOutputCallRequest{Payload: body})
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("send: %v", err)
		}
		for err = nil; err == nil; {
			_, err = ss.Recv()
		}
		if errdefs.ClassOf(err) != errdefs.DeadlineExceeded {
			t.Errorf("receive: %v", err)
		}
		if err := f.end(); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	})
}

// T24.5 with traffic: streams that are cut while both ends send.
func TestT24_TrafficIsCut(t *testing.T) {
	f := start(t, grpcx.ServerOptions{DrainTimeout: 300 * time.Millisecond},
		&service{}, listen(t))
	client, _ := f.dial(t, grpcx.ClientOptions{})
	body := &pb.StreamingOutputCallRequest{Payload: &pb.Payload{Body: make([]byte, 10<<10)}}
	ended := make(chan error, 10)
	for _, ss := range open(t, client, 10) {
		go func() {
			for ss.Send(body) == nil {
			}
		}()
		go func() {
			for {
				if _, err := ss.Recv(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	if err := f.end(); err != nil {
		t.Error(err)
	}
	for range 10 {
		if err := <-ended; errdefs.ClassOf(err) != errdefs.Unavailable {
			t.Errorf("a stream ended with %v", err)
		}
	}
}
