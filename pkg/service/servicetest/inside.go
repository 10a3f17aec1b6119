package servicetest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/telemetry"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// Running is a service in this process.
type Running struct {
	stop func() error
	over chan struct{}
}

// Serve starts a service and returns when it is built. The error is that of its build, after which nothing runs.
func Serve(name string, c service.Common, build func(*service.Env) ([]service.Actor, error)) (*Running, error) {
	ctx, cancel := context.WithCancel(context.Background())
	tel, err := telemetry.Open(ctx, "tandem-"+name, "test", c.Telemetry)
	if err != nil {
		cancel()
		return nil, err //nolint:wrapcheck // says what it did
	}
	env := &service.Env{Telemetry: tel, Name: name, Version: "test", Budget: c.ShutdownTimeout}
	built, ended, over := make(chan struct{}), make(chan error, 1), make(chan struct{})
	go func() {
		ended <- service.Serve(ctx, env, func(context.Context) ([]service.Actor, error) {
			actors, err := build(env)
			if err == nil {
				close(built)
			}
			return actors, err
		})
		close(over)
	}()
	select {
	case <-built:
	case err := <-ended:
		cancel()
		return nil, err
	}
	return &Running{over: over, stop: sync.OnceValue(func() error {
		forks.RLock()
		defer forks.RUnlock()
		cancel()
		return <-ended
	})}, nil
}

// Stop ends the service as SIGTERM does and returns how it ended.
func (r *Running) Stop() error { return r.stop() }

// Over is closed when the service has ended, by itself too.
func (r *Running) Over() <-chan struct{} { return r.over }

// Dial makes a plain gRPC client, as anybody's, that comes back soon.
func Dial(t testing.TB, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: testkit.Patience,
		}))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// given are the ports that FreeAddr has returned: a node that is down keeps its own.
var given sync.Map

// FreeAddr returns a loopback address that nobody listens on, nor at the ports that far beside it; they are below the ports that
// connections take by themselves.
func FreeAddr(t testing.TB, beside ...int) string {
	t.Helper()
	for range 1000 {
		port := 12000 + rand.IntN(20000) //nolint:gosec // any will do
		if free(t, port) && !slices.ContainsFunc(beside, func(d int) bool { return !free(t, port+d) }) {
			return loopback(port)
		}
	}
	t.Fatal("no free port")
	return ""
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func free(t testing.TB, port int) bool {
	t.Helper()
	if _, taken := given.LoadOrStore(port, true); taken {
		return false
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", loopback(port))
	return err == nil && ln.Close() == nil
}

// Record keeps what a service logs.
type Record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *Record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *Record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// Tail returns the last bytes of it.
func (r *Record) Tail() string {
	const most = 1 << 15
	s := r.String()
	return s[max(0, len(s)-most):]
}
