package testkit_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
)

// caught runs fn as a test of its own kind and says whether it failed.
func caught(fn func(t testing.TB)) bool {
	r := &recorder{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer r.cleanup()
		fn(r)
	}()
	<-r.done
	return r.failed
}

func TestSlaveAndMasterUnderstandEachOther(t *testing.T) {
	m := testkit.ListenMaster(t)
	s := testkit.DialSlave(t, m.Addr())
	x := m.Accept()
	s.Report(0, 77)
	s.Send([]byte("preamble"))
	if got := []int64{x.Report(), x.Report()}; !slices.Equal(got, []int64{0, 77}) {
		t.Errorf("reports %v", got)
	}
	if got := x.Read(8); string(got) != "preamble" {
		t.Errorf("preamble %q", got)
	}
	data := testkit.Frame{Offset: 77, Body: []byte("a body")}
	x.SendFrame(testkit.Frame{Offset: 77}, data)
	x.Send(testkit.Every(testkit.Frame{Offset: 83, Body: []byte("another")}.Bytes(), 1)...)
	if f := s.NextData(); f.Offset != 77 || string(f.Body) != "a body" {
		t.Errorf("got %+v", f)
	}
	s.ReadTo(90)
	if first, joined := s.Bodies(); first != 77 || string(joined) != "a bodyanother" {
		t.Errorf("%d %q", first, joined)
	}
	if n := len(s.Frames()); n != 3 {
		t.Errorf("%d frames", n)
	}
	s.Silent(time.Millisecond)
	s.Report(83, 90, 91)
	if r := x.AwaitReport(90); r != 90 {
		t.Errorf("report %d", r)
	}
	x.SendFrame(testkit.Frame{Offset: 90})
	x.Close()
	if n := s.AwaitClose(); n != 1 && n != 0 { // closed with a report unread: the last frame may be lost with it
		t.Errorf("%d frames before the end", n)
	}
	s.Close()
	if s.TrySend([]byte("x")) == nil {
		t.Error("sent on a closed connection")
	}
}

func TestMasterSeesTheEnd(t *testing.T) {
	a, b := net.Pipe()
	s, x := testkit.NewFakeSlave(t, a), testkit.NewMasterSession(t, b)
	go func() {
		_ = s.TrySend(testkit.Report(1), testkit.Report(2), []byte{0})
		s.Close()
	}()
	if got := x.AwaitClose(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("got %v", got)
	}
}

func TestReadFrameErrors(t *testing.T) {
	whole := testkit.Frame{Offset: 5, Body: []byte("abc")}.Bytes()
	if _, err := testkit.ReadFrame(bytes.NewReader(nil)); !errors.Is(err, io.EOF) {
		t.Errorf("between frames: %v", err)
	}
	for n := 1; n < len(whole); n++ {
		if _, err := testkit.ReadFrame(bytes.NewReader(whole[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	for _, size := range []int32{-1, 1 << 30} {
		if _, err := testkit.ReadFrame(bytes.NewReader(testkit.Header(0, size))); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("size %d: %v", size, err)
		}
	}
}

func TestFakesFailTheirTest(t *testing.T) {
	m := testkit.ListenMaster(t)
	for name, fn := range map[string]func(t testing.TB){
		"next after the end": func(t testing.TB) {
			s := testkit.DialSlave(t, m.Addr())
			m.Accept().Close()
			s.Next()
		},
		"not silent": func(t testing.TB) {
			s := testkit.DialSlave(t, m.Addr())
			m.Accept().Send([]byte{0})
			s.Silent(testkit.Patience)
		},
		"closed is not silent": func(t testing.TB) {
			s := testkit.DialSlave(t, m.Addr())
			m.Accept().Close()
			s.Silent(testkit.Patience)
		},
		"no listener": func(t testing.TB) {
			gone := testkit.ListenMaster(t)
			gone.Close()
			testkit.DialSlave(t, gone.Addr())
		},
		"no such archive": func(t testing.TB) { testkit.Golden(t, "rocketmq-0") },
	} {
		if !caught(fn) {
			t.Errorf("%s: the test did not fail", name)
		}
	}
}

func TestCut(t *testing.T) {
	b := []byte("0123456789")
	for _, tc := range []struct {
		at   []int
		want []string
	}{
		{nil, []string{"0123456789"}},
		{[]int{3, 3, 9}, []string{"012", "345678", "9"}},
		{[]int{0, 10, 50}, []string{"0123456789"}},
		{[]int{5, 2}, []string{"01234", "56789"}},
	} {
		if got := join(testkit.Cut(b, tc.at...)); !slices.Equal(got, tc.want) {
			t.Errorf("at %v: %q", tc.at, got)
		}
	}
	if got := join(testkit.Every(b, 4)); !slices.Equal(got, []string{"0123", "4567", "89"}) {
		t.Errorf("every 4: %q", got)
	}
}

func join(chunks [][]byte) []string {
	var s []string
	for _, c := range chunks {
		s = append(s, string(c))
	}
	return s
}
