package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/goccy/go-yaml"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

// fakeVar makes the test binary act as a `storage` binary, for the playground.
const fakeVar = "TANDEMCTL_TEST_STORAGE"

func TestMain(m *testing.M) {
	if how := os.Getenv(fakeVar); how != "" {
		os.Exit(fakeStorage(how))
	}
	os.Exit(m.Run())
}

// fakeStorage serves at the address of its configuration until SIGTERM. `broken` ends at once with a last word,
// `stubborn` does not heed SIGTERM.
func fakeStorage(how string) int {
	switch how {
	case "broken":
		fmt.Fprintln(os.Stderr, "storage: the port is taken")
		return 3
	case "ledger":
		return fakeMember()
	}
	fs := flag.NewFlagSet("storage", flag.ContinueOnError)
	name := fs.String("config", "", "")
	if err := fs.Parse(os.Args[1:]); err != nil {
		return 2
	}
	b, err := os.ReadFile(*name)
	if err != nil {
		return 2
	}
	if strings.HasSuffix(*name, "configsync.yaml") {
		return fakeConfigSync(b)
	}
	var c nodeConfig
	if err := yaml.UnmarshalWithOptions(b, &c, yaml.Strict()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s := clienttest.Start(processTB{}, clienttest.Options{Addr: c.Listen, Slave: c.BrokerRole == "SLAVE"})
	s.OnStatus(func(st *storagev1.StatusResponse) { st.InSyncSlaves = int32(len(c.HA.Peers) - 1) }) //nolint:gosec // small
	<-ctx.Done()
	if how == "stubborn" {
		select {} // until it is killed
	}
	s.Stop()
	return 0
}

// processTB is what clienttest needs of a test, in a process that is none.
type processTB struct{ testing.TB }

func (processTB) Helper()        {}
func (processTB) Cleanup(func()) {}
func (processTB) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}

// syncBuffer may be read while a command writes.
type syncBuffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	news chan struct{} // capacity 1: something was written
}

func newSyncBuffer() *syncBuffer { return &syncBuffer{news: make(chan struct{}, 1)} }

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// waitFor blocks until the text has been written.
func (s *syncBuffer) waitFor(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(s.String(), text) {
		select {
		case <-s.news:
		case <-t.Context().Done():
			t.Fatalf("never written: %q in\n%s", text, s.String())
		}
	}
}

// result of one command line.
type result struct {
	code     int
	out, err string
}

// ctl runs one command line against addr.
func ctl(t *testing.T, addr, stdin string, args ...string) result {
	t.Helper()
	out, errOut := newSyncBuffer(), newSyncBuffer()
	a := &app{in: strings.NewReader(stdin), out: out, errOut: errOut, env: func(name string) string {
		if name == addrVar {
			return addr
		}
		return ""
	}}
	code := a.run(t.Context(), args)
	return result{code, out.String(), errOut.String()}
}

// want fails unless the command ended with code and wrote what is wanted, with the address written as ADDR.
func (r result) want(t *testing.T, code int, out, errOut string, addrs ...string) {
	t.Helper()
	for i, a := range addrs {
		name := "ADDR"
		if i > 0 {
			name = fmt.Sprintf("ADDR%d", i+1)
		}
		r.out, r.err = strings.ReplaceAll(r.out, a, name), strings.ReplaceAll(r.err, a, name)
	}
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if r.out != out {
		t.Errorf("stdout:\n%s\nwant:\n%s", r.out, out)
	}
	if r.err != errOut {
		t.Errorf("stderr:\n%s\nwant:\n%s", r.err, errOut)
	}
}

// startCtl runs a command line that goes on until it is stopped; stop may be called again.
func startCtl(t *testing.T, addr string, args ...string) (out, errOut *syncBuffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut, wait := beginCtl(ctx, addr, args...)
	return out, errOut, func() int {
		cancel()
		return wait()
	}
}

// beginCtl runs a command line beside the test; wait returns its exit code once it has ended.
func beginCtl(ctx context.Context, addr string, args ...string) (out, errOut *syncBuffer, wait func() int) {
	out, errOut = newSyncBuffer(), newSyncBuffer()
	a := &app{in: strings.NewReader(""), out: io.Writer(out), errOut: errOut, env: func(name string) string {
		if name == addrVar {
			return addr
		}
		return ""
	}}
	code := make(chan int, 1)
	go func() { code <- a.run(ctx, args) }()
	return out, errOut, sync.OnceValue(func() int { return <-code })
}

var (
	regexpDuration = regexp.MustCompile(`\([0-9.]+m?s\)`)
	regexpAgo      = regexp.MustCompile(`[0-9.]+m?s ago`)
	regexpSpaces   = regexp.MustCompile(` +`)
)

// alignAddresses names addresses and takes the columns' padding out, whose width depends on the ports.
func alignAddresses(out string, addrs ...string) string {
	for i, a := range addrs {
		name := "ADDR"
		if i > 0 {
			name = fmt.Sprintf("ADDR%d", i+1)
		}
		out = strings.ReplaceAll(out, a, name)
	}
	return regexpSpaces.ReplaceAllString(out, " ")
}
