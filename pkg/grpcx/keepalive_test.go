package grpcx_test

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc/connectivity"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// T24.4 (W01): ten idle minutes with the shipped settings, without and with an open stream.
func TestT24_IdleIsNotSentAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, grpcx.ServerOptions{}, &service{}, nil)
		var dials atomic.Int64
		client, conn := f.dial(t, grpcx.ClientOptions{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			dials.Add(1)
			return f.buf.DialContext(ctx)
		}})
		if _, err := client.UnaryCall(t.Context(), payload(1)); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Minute) // the bubble's clock
		if state := conn.GetState(); state != connectivity.Ready || dials.Load() != 1 {
			t.Errorf("idle connection: %v after %d dials", state, dials.Load())
		}
		ss := open(t, client, 1)[0]
		<-time.After(10 * time.Minute) // the bubble's clock
		if err := ss.Send(&pb.StreamingOutputCallRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := ss.Recv(); err != nil || dials.Load() != 1 {
			t.Errorf("idle stream: %v after %d dials", err, dials.Load())
		}
		_ = conn.Close()
		if err := f.end(); err != nil {
			t.Error(err)
		}
	})
}

// blackHole is a connection that, once closed off, swallows what is written and delivers nothing more.
type blackHole struct {
	net.Conn
	off  atomic.Bool
	gone chan struct{}
	once sync.Once
}

func (b *blackHole) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if b.off.Load() {
		<-b.gone
		return 0, net.ErrClosed
	}
	return n, err
}

func (b *blackHole) Write(p []byte) (int, error) {
	if b.off.Load() {
		return len(p), nil
	}
	return b.Conn.Write(p)
}

func (b *blackHole) Close() error {
	b.once.Do(func() { close(b.gone) })
	return b.Conn.Close()
}

// T24.3 (W11): a peer behind a black hole is noticed by both ends although nobody closes anything.
func TestT24_BlackHoleIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handlerEnded := make(chan time.Time, 1)
		f := start(t, grpcx.ServerOptions{}, &service{stream: func(ss bidi) error {
			err := (&service{}).FullDuplexCall(ss)
			handlerEnded <- time.Now()
			return err
		}}, nil)
		var hole *blackHole
		client, conn := f.dial(t, grpcx.ClientOptions{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := f.buf.DialContext(ctx)
			if err != nil || hole != nil {
				return c, err
			}
			hole = &blackHole{Conn: c, gone: make(chan struct{})}
			return hole, nil
		}})
		ss := open(t, client, 1)[0]
		hole.off.Store(true)
		began := time.Now()
		_, err := ss.Recv()
		if took := time.Since(began); errdefs.ReasonOf(err) != grpcx.ReasonUnreachable || took > 20*time.Second {
			t.Errorf("the client noticed after %v: %v", took, err)
		}
		if took := (<-handlerEnded).Sub(began); took > 20*time.Second {
			t.Errorf("the server noticed after %v", took)
		}
		if _, err := client.UnaryCall(t.Context(), payload(1)); err != nil {
			t.Errorf("the next connection: %v", err)
		}
		_ = conn.Close()
		if err := f.end(); err != nil {
			t.Error(err)
		}
	})
}

// T25.2 (O01, O03): connections come and go, and neither heap nor goroutines nor series grow.
func TestT25_DialsLeaveNothingBehind(t *testing.T) {
	reader := metric.NewManualReader()
	p := grpcx.Providers{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}
	f := start(t, grpcx.ServerOptions{Providers: p}, &service{}, listen(t))
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{Providers: p})
	if err != nil {
		t.Fatal(err)
	}
	rounds := func(n int) (heap uint64, goroutines, series int) {
		for range n {
			conn, err := dialer.Dial(f.ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pb.NewTestServiceClient(conn).UnaryCall(t.Context(), payload(1)); err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		_, series = sums(t, reader)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine(), series
	}
	n := 1000
	if testing.Short() {
		n = 200
	}
	heap, goroutines, series := rounds(n / 5)
	heap2, goroutines2, series2 := rounds(n)
	if series2 != series {
		t.Errorf("series grew from %d to %d", series, series2)
	}
	if heap2 > heap+2<<20 {
		t.Errorf("heap grew from %d to %d", heap, heap2)
	}
	if goroutines2 > goroutines+50 { // connections that are still closing
		t.Errorf("goroutines grew from %d to %d", goroutines, goroutines2)
	}
}
