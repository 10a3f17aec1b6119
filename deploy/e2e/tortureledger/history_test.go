package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// logOf makes a book: "" is a no-op, which begins a term.
func logOf(t *testing.T, ids ...string) *book {
	t.Helper()
	b := newBook()
	term := int64(0)
	for i, id := range ids {
		if id == "" {
			term++
		}
		if err := b.add([]entry{{index: int64(i), term: term, id: id}}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func appended(id string, call, ret int, f fate, index int64) op {
	return op{id: id, call: time.Duration(call), ret: time.Duration(ret), fate: f, index: index}
}

func readTo(call, ret int, index int64, shown ...entry) op {
	return op{call: time.Duration(call), ret: time.Duration(ret), fate: done, index: index, shown: shown}
}

func TestHistory(t *testing.T) {
	log := []string{"", "a", "b", "", "c"}
	for _, tc := range []struct {
		name string
		ops  []op
		bad  string // part of the violation; empty: none
		late int
	}{
		{name: "in order", ops: []op{appended("a", 1, 2, done, 1), readTo(3, 4, 1), appended("b", 5, 6, done, 2), appended("c", 7, 8, done, 4), readTo(9, 10, 4)}},
		{name: "at the same time", ops: []op{appended("b", 1, 9, done, 2), appended("a", 1, 9, done, 1), readTo(1, 9, 3), readTo(1, 9, 0), appended("c", 1, 9, done, 4)}},
		{name: "unknown and there", ops: []op{appended("a", 1, 2, done, 1), appended("b", 3, 4, unknown, 0), readTo(5, 6, 1), appended("c", 7, 8, done, 4)}},
		{name: "unknown and not there", ops: []op{appended("a", 1, 2, done, 1), appended("x", 3, 4, unknown, 0), appended("b", 5, 6, done, 2), appended("c", 7, 8, done, 4)}, late: 1},
		{name: "refused and not there", ops: []op{appended("a", 1, 2, done, 1), appended("x", 3, 4, refused, 0), appended("b", 5, 6, done, 2), appended("c", 7, 8, done, 4)}},
		{name: "refused and there", ops: []op{appended("a", 3, 4, refused, 0)}, bad: "was refused, and stands at 1"},
		{name: "lost", ops: []op{appended("x", 1, 2, done, 9)}, bad: "is lost"},
		{name: "elsewhere", ops: []op{appended("a", 1, 2, done, 2)}, bad: "stands at 1"},
		{name: "stale read", ops: []op{appended("a", 1, 2, done, 1), appended("b", 3, 4, done, 2), readTo(5, 6, 1), appended("c", 7, 8, done, 4)}, bad: "not linearizable"},
		{name: "read of what is appended later", ops: []op{appended("a", 1, 2, done, 1), readTo(3, 4, 2), appended("b", 5, 6, done, 2), appended("c", 7, 8, done, 4)}, bad: "not linearizable"},
		{name: "two reads that go back", ops: []op{appended("a", 1, 20, done, 1), readTo(3, 4, 1), readTo(5, 6, 0), appended("b", 1, 20, done, 2), appended("c", 1, 20, done, 4)}, bad: "not linearizable"},
		{name: "order of real time", ops: []op{appended("b", 1, 2, done, 2), appended("a", 3, 4, done, 1), appended("c", 7, 8, done, 4)}, bad: "not linearizable"},
		{name: "read beyond the end", ops: []op{readTo(1, 2, 7)}, bad: "it ends at 4"},
		{name: "read of something else", ops: []op{readTo(1, 2, 4, entry{index: 1, term: 1, id: "b"})}, bad: "not what stands there"},
	} {
		h := newHistory(nil)
		for i, o := range tc.ops {
			o.client = i
			h.add(o)
		}
		v := h.check(logOf(t, log...), 0)
		if got := strings.Join(v.bad, "; "); (tc.bad == "") != (got == "") || !strings.Contains(got, tc.bad) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.bad)
		}
		if len(v.lateOrLost) != tc.late {
			t.Errorf("%s: %d open, want %d", tc.name, len(v.lateOrLost), tc.late)
		}
	}
}

// TestHistoryOfAFullWindow is as much as a window may hold, with eight clients at the same time.
func TestHistoryOfAFullWindow(t *testing.T) {
	b, h := newBook(), newHistory(nil)
	for i := range maxOps {
		if !h.begin() {
			t.Fatalf("the window ends at %d", i)
		}
		o := appended(fmt.Sprint(i), 10*i, 10*i+80, done, int64(i))
		if i%7 == 0 {
			o.fate = unknown
		}
		if err := b.add([]entry{{index: int64(i), term: 1, id: o.id}}); err != nil {
			t.Fatal(err)
		}
		o.client = i % 8
		h.add(o)
	}
	if h.begin() {
		t.Error("the window does not end")
	}
	if v := h.check(b, 0); len(v.bad) > 0 || v.checked != maxOps {
		t.Errorf("%d checked: %v", v.checked, v.bad)
	}
}

func TestBook(t *testing.T) {
	b := logOf(t, "", "a")
	for _, tc := range []struct {
		e    entry
		want string
	}{
		{entry{index: 3, term: 1, id: "b"}, "where 2 is due"},
		{entry{index: 2, term: 0, id: "b"}, "has term 0"},
		{entry{index: 2, term: 1, id: "a"}, "stands twice"},
	} {
		if err := b.add([]entry{tc.e}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc.e, err)
		}
	}
}
