package remoting

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
)

// open returns a connection and the other end, which answers by f until f is nil.
func open(t *testing.T, f func(w net.Conn, req *frame.Command)) (*Conn, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	if f != nil {
		go func() {
			in := bufio.NewReader(there)
			for {
				req, size, err := ReadHeader(in, 1<<20)
				if err != nil || skip(in, size) != nil {
					return
				}
				f(there, req)
			}
		}()
	}
	c, err := Connect(t.Context(), func(context.Context, string, string) (net.Conn, error) { return here, nil }, "there:1", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return c, there
}

func send(w io.Writer, c *frame.Command, body string) {
	_, _ = w.Write(append(frame.Append(nil, c, len(body)), body...))
}

// TestCallFindsItsAnswer among requests, answers to others and those that come late; a refused call leaves the connection usable.
func TestCallFindsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := open(t, func(w net.Conn, req *frame.Command) {
			send(w, &frame.Command{Code: 40, Flag: frame.FlagOneWay, Opaque: req.Opaque}, "a request of the other side")
			send(w, &frame.Command{Code: 0, Flag: frame.FlagResponse, Opaque: req.Opaque - 1}, "late")
			if req.Code == 13 {
				send(w, &frame.Command{Encoding: frame.Binary, Code: 2, Flag: frame.FlagResponse, Opaque: req.Opaque, Remark: "busy"}, "")
				return
			}
			send(w, &frame.Command{Encoding: frame.Binary, Flag: frame.FlagResponse, Opaque: req.Opaque, Fields: req.Fields}, "the body")
		})
		for _, code := range []int32{1, 13, 2} {
			answer, body, err := c.Call(t.Context(), code, map[string]string{"k": "v"}, []byte("x"))
			switch {
			case code == 13 && !errors.Is(err, ErrRefused):
				t.Errorf("refused: %v", err)
			case code != 13 && (err != nil || string(body) != "the body" || answer.Fields["k"] != "v"):
				t.Errorf("%d: %+v, %q, %v", code, answer, body, err)
			}
		}
	})
}

// TestEnds: a call ends with its context, and with the connection.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent, _ := open(t, func(net.Conn, *frame.Command) {})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if _, _, err := silent.Call(ctx, 1, nil, nil); !errors.Is(err, ErrTimeout) || time.Since(begin) != 3*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if _, _, err := silent.Call(canceled, 1, nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		cut, _ := open(t, func(w net.Conn, req *frame.Command) {
			_, _ = w.Write(frame.Append(nil, &frame.Command{Flag: frame.FlagResponse, Opaque: req.Opaque}, 100)[:20])
			w.Close()
		})
		if _, _, err := cut.Call(t.Context(), 1, nil, nil); !errors.Is(err, ErrLost) {
			t.Errorf("cut: %v", err)
		}
		garbage, _ := open(t, func(w net.Conn, _ *frame.Command) { _, _ = w.Write([]byte("HTTP/1.1 400 Bad Request")) })
		if _, _, err := garbage.Call(t.Context(), 1, nil, nil); !errors.Is(err, frame.ErrLength) {
			t.Errorf("HTTP: %v", err)
		}
		_, err := Connect(t.Context(), func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }, "there:1", 1)
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("nobody there: %v", err)
		}
	})
}

// TestIdle: it lasts as long as asked, skips what comes, sees the end at once, and the connection is of use afterwards.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, there := open(t, nil)
		time.AfterFunc(5*time.Second, func() { send(there, &frame.Command{Code: 40, Flag: frame.FlagOneWay}, "unasked") })
		begin := time.Now()
		if err := c.Idle(t.Context(), 30*time.Second); err != nil || time.Since(begin) != 30*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		go func() {
			req, _, err := ReadHeader(there, 1<<20)
			if err == nil {
				send(there, &frame.Command{Flag: frame.FlagResponse, Opaque: req.Opaque}, "")
			}
		}()
		if _, _, err := c.Call(t.Context(), 1, nil, nil); err != nil {
			t.Errorf("a call afterwards: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := c.Idle(ctx, time.Hour); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		begin = time.Now()
		time.AfterFunc(7*time.Second, func() { there.Close() })
		if err := c.Idle(t.Context(), 30*time.Second); !errors.Is(err, ErrLost) || time.Since(begin) != 7*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

// TestWhatIsClaimedCostsNothing: memory comes with the bytes, not with the length.
func TestWhatIsClaimedCostsNothing(t *testing.T) {
	head := frame.Append(nil, &frame.Command{Flag: frame.FlagResponse}, 1<<30)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, w := io.Pipe()
	go func() {
		_, _ = w.Write(head)
		w.Close()
	}()
	_, size, err := ReadHeader(r, 2<<30-1)
	if err != nil || size != 1<<30 {
		t.Errorf("%d, %v", size, err)
	}
	if b, err := read(r, size); !errors.Is(err, io.ErrUnexpectedEOF) || len(b) > 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}
