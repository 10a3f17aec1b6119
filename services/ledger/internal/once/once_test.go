package once

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/entry"
)

// example returns the bytes of the line of FORMAT.md that begins with prefix.
func example(t *testing.T, prefix string) []byte {
	t.Helper()
	text, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "    "+prefix) {
			b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(line))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no example %q", prefix)
	return nil
}

func TestFormatExamples(t *testing.T) {
	key := Key{Sequence: 258}
	for i := range key.Client {
		key.Client[i] = byte(i)
	}
	b := Payload(7, []byte("hello"), &key)
	entry.Stamp(b, 3, 1, 0, false)
	h, err := entry.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if want := example(t, "68656c6c6f"); !bytes.Equal(h.Body(b), want) || h.Channel != Channel {
		t.Errorf("% x, want % x", h.Body(b), want)
	}
	c := Read(&h, b)
	if string(c.Body) != "hello" || c.Channel != 7 || !c.Keyed || c.Key != key {
		t.Errorf("%+v", c)
	}
	w := newWindow(10)
	w.applied = raft.Mark{Index: 599, Term: 2}
	if want := example(t, "54444d4b"); !bytes.Equal(w.encode(), want) {
		t.Errorf("% x, want % x", w.encode(), want)
	}
}

// TestOtherEntriesHaveNoKey: those of clients without one, of Java, and those that only look alike.
func TestOtherEntriesHaveNoKey(t *testing.T) {
	for _, tc := range []struct {
		channel int32
		body    int
	}{{0, 100}, {7, 28}, {Channel, 28}, {Channel, 1}} {
		b := entry.New(tc.channel, make([]byte, tc.body))
		h, err := entry.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if c := Read(&h, b); c.Keyed || len(c.Body) != tc.body || c.Channel != tc.channel {
			t.Errorf("channel %x, %d bytes: %+v", tc.channel, tc.body, c)
		}
	}
	for channel, want := range map[int32]bool{0: false, 0x54444D00: true, 0x54444DFF: true, 0x54444E00: false, -1: false} {
		if Reserved(channel) != want {
			t.Errorf("%x", channel)
		}
	}
}

// TestWindowAgainstAList compares the window with a list of all entries, across saving and loading.
func TestWindowAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 50 {
		size := 1 + rng.IntN(20)
		w := newWindow(size)
		var all []*Key
		for range 200 {
			var key *Key
			if rng.IntN(3) > 0 {
				key = &Key{Sequence: rng.Uint64N(60)} // some stand twice
			}
			all = append(all, key)
			w.pass(raft.Mark{Index: raft.Index(len(all) - 1), Term: 1}, key)
			if rng.IntN(10) == 0 {
				saved := w.encode()
				w = newWindow(size)
				if err := w.decode(saved); err != nil {
					t.Fatal(err)
				}
			}
			if want := max(raft.NoIndex, raft.Index(len(all)-1-size)); w.start != want {
				t.Fatalf("start %d, want %d", w.start, want)
			}
			for sequence := range uint64(60) {
				want, known := raft.NoIndex, false
				for i := int(w.start) + 1; i < len(all); i++ {
					if k := all[i]; k != nil && k.Sequence == sequence {
						want, known = raft.Index(i), true
					}
				}
				if got, ok := w.at[Key{Sequence: sequence}]; ok != known || ok && got != want {
					t.Fatalf("%d stands at %d, %t; want %d, %t", sequence, got, ok, want, known)
				}
			}
			if len(w.queue)-w.head > size {
				t.Fatalf("%d keys in a window of %d", len(w.queue)-w.head, size)
			}
		}
	}
}

func TestBrokenKeysFile(t *testing.T) {
	w := newWindow(10)
	for i := range raft.Index(5) {
		w.pass(raft.Mark{Index: i, Term: 1}, &Key{Sequence: uint64(i)}) //nolint:gosec // small
	}
	good := w.encode()
	for name, change := range map[string]func(b []byte) []byte{
		"magic":        func(b []byte) []byte { b[0]++; return b },
		"short":        func(b []byte) []byte { return b[:20] },
		"cut":          func(b []byte) []byte { return b[:len(b)-1] },
		"count":        func(b []byte) []byte { b[32] = 0xff; return b },
		"start":        func(b []byte) []byte { b[8] = 0x80; return b },
		"order":        func(b []byte) []byte { copy(b[60:68], b[92:100]); return b },
		"behind index": func(b []byte) []byte { b[len(b)-1] = 9; return b },
	} {
		if err := w.decode(change(bytes.Clone(good))); err == nil {
			t.Errorf("%s: taken", name)
		}
		if !bytes.Equal(w.encode(), good) {
			t.Errorf("%s: the window has changed", name)
		}
	}
}

func TestQueueIsBounded(t *testing.T) {
	q := queue{wake: make(chan struct{}, 1), maxBytes: 1000, maxRequests: 3}
	put := func(n int) error { return q.put(newPending(&Request{Bodies: [][]byte{make([]byte, n)}})) }
	if err := put(2000); err != nil {
		t.Errorf("a large one alone: %v", err)
	}
	if err := put(1); err == nil {
		t.Error("more bytes than allowed")
	}
	if n := len(q.take()); n != 1 || q.bytes != 0 {
		t.Errorf("%d taken, %d bytes left", n, q.bytes)
	}
	for range 3 {
		if err := put(1); err != nil {
			t.Error(err)
		}
	}
	if err := put(1); err == nil {
		t.Error("more requests than allowed")
	}
	if left := q.close(); len(left) != 3 || put(1) == nil {
		t.Errorf("%d left at the end", len(left))
	}
}
