package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// sound is three messages in two queues: 0 and 2 acknowledged, 1 unknown and there; 3 unknown, 4 refused, both not there.
func sound() (image, []put) {
	return image{{{0, 100}, {2, 300}}, {{1, 200}}}, []put{
		{fate: stored, offset: 100},
		{fate: maybe, what: "unknown"},
		{fate: stored, offset: 300, queueOffs: 1},
		{fate: maybe, what: "unknown"},
		{fate: absent, what: "not stored"},
	}
}

func expect(t *testing.T, h *history, want string) {
	t.Helper()
	got := strings.Join(h.bad, "\n")
	if want == "" && got != "" || !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPuts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(image, []put) image
		want   string
	}{
		{"sound", func(i image, _ []put) image { return i }, ""},
		{"lost", func(i image, _ []put) image { i[0] = i[0][:1]; return i }, "message 2 was acknowledged at offset 300, queue 0, queue offset 1 and is not there"},
		{"moved", func(i image, _ []put) image { i[0][1].offset = 301; return i }, "stands at 301"},
		{"other place in the queue", func(i image, p []put) image { p[2].queueOffs = 2; return i }, "message 2 was acknowledged"},
		{"other queue", func(i image, p []put) image { p[0].queue = 1; return i }, "message 0 was acknowledged"},
		{"twice", func(i image, _ []put) image { i[1] = append(i[1], record{1, 400}); return i }, "message 1 (unknown) stands twice"},
		{"refused and there", func(i image, _ []put) image { i[1] = append(i[1], record{4, 400}); return i }, "message 4 (not stored) stands at"},
		{"stranger", func(i image, _ []put) image { i[1] = append(i[1], record{5, 400}); return i }, "nobody sent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			img, puts := sound()
			h := &history{}
			h.checkPuts("n1", tc.change(img, puts), puts, true)
			expect(t, h, tc.want)
			if tc.want == "" && h.maybes != 1 {
				t.Errorf("%d without PUT_OK, 1 is there", h.maybes)
			}
		})
	}
}

func TestReaders(t *testing.T) {
	gone := func(r *reader) { r.seen[1][0] = record{3, 200} }
	for _, tc := range []struct {
		name     string
		change   func(*reader)
		refuse   bool
		want     string
		vanished int
	}{
		{"sound", func(*reader) {}, true, "", 0},
		{"vanished", gone, true, "saw message 3 at queue 1, queue offset 0", 0},
		{"vanished without a promise", gone, false, "", 1},
		{"acknowledged and vanished", func(r *reader) { r.seen[0] = append(r.seen[0], record{2, 500}) }, false, "vanished", 0},
		{"beyond the end", func(r *reader) { r.seen[1] = append(r.seen[1], record{3, 500}) }, true, "vanished", 0},
		{"twice", func(r *reader) { r.seen[1] = append(r.seen[1], record{1, 200}) }, true, "saw message 1 twice", 0},
		{"began later", func(r *reader) { r.from[0], r.seen[0] = 1, r.seen[0][1:] }, true, "", 0},
		{"garbage", func(r *reader) { r.take(0, &storagev1.StoredMessage{QueueOffset: 2}) }, true, "not what was sent", 0},
		{"gap", func(r *reader) { r.take(0, stand(3, 9)) }, true, "came at queue offset 3, 2 was due", 0},
		{"again", func(r *reader) { r.take(0, stand(1, 2)) }, true, "came at queue offset 1, 2 was due", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			img, puts := sound()
			r := newReader("reader", make([]int64, queues), nil)
			r.seen[0], r.seen[1] = append([]record(nil), img[0]...), append([]record(nil), img[1]...)
			tc.change(r)
			h := &history{}
			h.checkReader(r, img, puts, tc.refuse)
			expect(t, h, tc.want)
			if h.vanished != tc.vanished {
				t.Errorf("%d vanished, want %d", h.vanished, tc.vanished)
			}
		})
	}
}

// stand is message number as it stands at a queue offset.
func stand(queueOffset int64, number int) *storagev1.StoredMessage {
	return &storagev1.StoredMessage{QueueOffset: queueOffset, Message: &storagev1.Message{Body: body(number)}}
}

func TestBodies(t *testing.T) {
	m := stand(0, 123456)
	if n, err := parse(m); n != 123456 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	m.Message.Body[20]++
	if _, err := parse(m); err == nil {
		t.Error("another body passed")
	}
}

func TestFiles(t *testing.T) {
	write := func(dir, name, content string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(dir string) (log, units map[string][]byte) {
		t.Helper()
		log, err := logFiles(dir, 7)
		if err != nil {
			t.Fatal(err)
		}
		if units, err = queueUnits(dir); err != nil {
			t.Fatal(err)
		}
		return log, units
	}
	const (
		one  = "commitlog/00000000000000000000"
		two  = "commitlog/00000000000000000005"
		tree = "consumequeue/t/0/00000000000000000000"
	)
	zeros := strings.Repeat("\x00", unit)
	entry := strings.Repeat("u", unit)
	a := t.TempDir()
	write(a, one, "abcde")
	write(a, two, "fg\x00\x00\x00")
	write(a, tree, entry+zeros)
	for _, tc := range []struct{ name, file, content, want string }{
		{"behind the ends", two, "fgxyz", ""},
		{"a file made ahead", "commitlog/00000000000000000010", "?", ""},
		{"an empty queue", "consumequeue/t/1/00000000000000000000", zeros, ""},
		{"log", two, "fx\x00\x00\x00", "n1: log file 00000000000000000005 has other bytes"},
		{"short log", two, "f", "has other bytes"},
		{"unit", tree, strings.Repeat("v", unit), "n1: queue t/0 has other bytes"},
		{"one unit more", tree, entry + entry, "has other bytes"},
		{"one queue more", "consumequeue/t/1/00000000000000000000", entry, "queue t/1 is not on n0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := t.TempDir()
			write(b, one, "abcde")
			write(b, two, "fg\x00\x00\x00")
			write(b, tree, entry)
			write(b, tc.file, tc.content)
			h := &history{}
			la, ua := read(a)
			lb, ub := read(b)
			h.same("n1", "log file", la, lb)
			h.same("n1", "queue", ua, ub)
			expect(t, h, tc.want)
		})
	}
}

func TestPlansAreReplayable(t *testing.T) {
	kinds := map[kind]bool{}
	for round := range 200 {
		p := newPlan(7, round)
		if p.String() != newPlan(7, round).String() {
			t.Fatalf("round %d has two plans", round)
		}
		for _, f := range p.faults {
			kinds[f.kind] = true
			if f.at >= p.lasts || f.lasts <= 0 {
				t.Errorf("round %d: %v", round, f)
			}
		}
	}
	if len(kinds) != 13 {
		t.Errorf("%d kinds of faults in 200 rounds", len(kinds))
	}
	if newPlan(7, 1).String() == newPlan(8, 1).String() {
		t.Error("two seeds have one plan")
	}
}
