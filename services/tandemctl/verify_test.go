package main

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

// fakeLog is a node with nothing but a log.
type fakeLog struct {
	first int64
	log   []byte
	calls atomic.Int32
	most  int // stretches of one answer; 0: all
	grow  []byte
}

func (l *fakeLog) Address() string { return "fake" }

func (l *fakeLog) Status(context.Context) (*client.NodeStatus, error) {
	end := l.first + int64(len(l.log))
	if len(l.grow) > 0 {
		l.log, l.grow = append(l.log, l.grow[0]), l.grow[1:]
	}
	return &client.NodeStatus{Watermarks: &storagev1.Watermarks{FirstOffset: l.first, WrittenOffset: end, ReadableOffset: end}}, nil
}

func (l *fakeLog) Checksum(_ context.Context, from, to, stretch int64) (*client.Checksums, error) {
	l.calls.Add(1)
	if stretch < minStretch {
		panic("stretch below the storage's smallest")
	}
	if l.most > 0 {
		to = min(to, from+int64(l.most)*stretch)
	}
	r := &client.Checksums{FromOffset: from, ToOffset: to, StretchSize: stretch}
	for piece := range slices.Chunk(l.log[from-l.first:to-l.first], int(stretch)) {
		r.Checksums = append(r.Checksums, crc32.Checksum(piece, crc32.MakeTable(crc32.Castagnoli)))
	}
	return r, nil
}

func (l *fakeLog) Range(_ context.Context, from, to int64, w io.Writer) (int64, error) {
	if to-from > minStretch+shownBytes {
		panic("read more than the smallest stretch")
	}
	n, err := w.Write(l.log[from-l.first : to-l.first])
	return int64(n), err
}

func randomLog(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func verifyFakes(t *testing.T, a, b *fakeLog, f verifyFlags) *verdict {
	t.Helper()
	if f.until == "" {
		f.until = "end"
	}
	if f.stretch == 0 {
		f.stretch = 1 << 20
	}
	if f.from == 0 {
		f.from = -1
	}
	v := &verifier{a: a, b: b, f: &f, progress: &progress{}}
	r, err := v.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifyNarrowsToTheByte(t *testing.T) {
	const first, size = 12345, 3<<20 + 777
	log := randomLog(size)
	for _, at := range []int{0, 1, 4095, 4096, 5000, 1<<20 - 1, 1 << 20, 2<<20 + 1234, 3 << 20, size - 1} {
		for _, stretch := range []int64{4096, 10000, 1 << 20, 64 << 20} {
			other := slices.Clone(log)
			other[at] ^= 1
			other[size-1] ^= 0x80 // the last byte differs as well, or for the second time
			if at == size-1 {
				other[at] = log[at] ^ 1
			}
			a, b := &fakeLog{first: first, log: log}, &fakeLog{first: first, log: other, most: 100}
			r := verifyFakes(t, a, b, verifyFlags{stretch: stretch})
			if r.Equal || r.Diff == nil || r.Diff.Why != whyBytes || r.Diff.Offset != int64(first+at) || r.To != r.Diff.Offset {
				t.Errorf("byte %d, stretch %d: %+v", at, stretch, r.Diff)
			} else if want := hexAt(other, at); r.Diff.B != want {
				t.Errorf("byte %d: B is %s, want %s", at, r.Diff.B, want)
			}
			if calls := a.calls.Load(); stretch == 1<<20 && calls > 12 {
				t.Errorf("byte %d: %d checksum calls", at, calls)
			}
		}
	}
}

func TestVerifySame(t *testing.T) {
	log := randomLog(200_000)
	for _, most := range []int{0, 1, 3} {
		a, b := &fakeLog{log: log}, &fakeLog{log: log, most: most}
		r := verifyFakes(t, a, b, verifyFlags{stretch: 4096})
		if !r.Equal || r.From != 0 || r.To != int64(len(log)) || r.Diff != nil {
			t.Errorf("most %d: %+v", most, r)
		}
	}
	if r := verifyFakes(t, &fakeLog{}, &fakeLog{}, verifyFlags{}); !r.Equal {
		t.Errorf("two empty logs: %+v", r)
	}
}

func TestVerifyShorter(t *testing.T) {
	log := randomLog(100_000)
	a, b := &fakeLog{log: log}, &fakeLog{log: log[:99_999]}
	r := verifyFakes(t, a, b, verifyFlags{})
	if r.Equal || r.Diff.Why != whyShorter || r.Diff.Offset != 99_999 {
		t.Errorf("%+v", r)
	}
	if r := verifyFakes(t, a, b, verifyFlags{until: "min"}); !r.Equal || r.To != 99_999 {
		t.Errorf("until min: %+v", r)
	}
	if r := verifyFakes(t, a, b, verifyFlags{until: "5000", from: 10}); !r.Equal || r.From != 10 || r.To != 5000 {
		t.Errorf("until 5000: %+v", r)
	}
	growing := &fakeLog{log: log[:99_997:99_997], grow: log[99_997:]}
	if r := verifyFakes(t, a, growing, verifyFlags{wait: time.Minute}); !r.Equal || r.To != 100_000 {
		t.Errorf("growing: %+v", r)
	}
}

func TestVerifyDifferentFirstOffsets(t *testing.T) {
	log := randomLog(100_000)
	a, b := &fakeLog{log: log}, &fakeLog{first: 50_000, log: log[50_000:]}
	r := verifyFakes(t, a, b, verifyFlags{})
	if !r.Equal || r.From != 50_000 || len(r.Notes) != 1 {
		t.Errorf("%+v", r)
	}
	v := &verifier{a: a, b: &fakeLog{first: 200_000}, f: &verifyFlags{until: "min", from: -1, stretch: 4096}, progress: &progress{}}
	if r, err := v.run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing to compare") {
		t.Errorf("no common range: %+v, %v", r, err)
	}
}

func TestVerifyCommand(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true})
	log := bytes.Repeat([]byte("0123456789"), 1000)
	a.SetLog(0, log)
	b.SetLog(0, log)
	r := ctl(t, "", "", "verify", a.Addr(), b.Addr())
	r.out = regexpDuration.ReplaceAllString(r.out, "(TIME)")
	r.out = alignAddresses(r.out, a.Addr(), b.Addr())
	r.want(t, exitOK, `NODE FIRST READABLE WRITTEN
ADDR 0 10000 10000
ADDR2 0 10000 10000

SAME: 9.8 KiB from 0 to 10000 are equal byte for byte (TIME)
`, "")
	log[7777] = 'x'
	b.SetLog(0, log)
	r = ctl(t, "", "", "verify", a.Addr(), b.Addr())
	r.out = alignAddresses(r.out, a.Addr(), b.Addr())
	r.want(t, exitFailed, `NODE FIRST READABLE WRITTEN
ADDR 0 10000 10000
ADDR2 0 10000 10000

DIFFERENT: the first byte that differs is at offset 7777
 A 37 38 39 30 31 32 33 34 35 36 37 38 39 30 31 32
 B 78 38 39 30 31 32 33 34 35 36 37 38 39 30 31 32
`, "  -> `tandemctl range --addr NODE --from 7713 --to 7841 | xxd` shows more of each\n"+
		"  -> `tandemctl scrub NODE` finds which one is damaged, for `tandemctl repair NODE --from PEER`;\n     where it calls both sound, you say which is right:\n"+
		"     `tandemctl repair NODE --from RIGHT --range 7777-7778` takes its bytes\n")
	ctl(t, "", "", "verify", a.Addr(), b.Addr(), "-o", "json").want(t, exitFailed,
		`{"equal":false,"from":"0","to":"7777","a":{"address":"ADDR","first":"0","written":"10000","readable":"10000"},`+
			`"b":{"address":"ADDR2","first":"0","written":"10000","readable":"10000"},`+
			`"difference":{"offset":"7777","why":"BYTES","a":"37 38 39 30 31 32 33 34 35 36 37 38 39 30 31 32","b":"78 38 39 30 31 32 33 34 35 36 37 38 39 30 31 32"}}`+"\n",
		"", a.Addr(), b.Addr())
	ctl(t, "", "", "verify", a.Addr(), a.Addr()).want(t, exitUsage, "",
		"tandemctl: ADDR stands there twice: name two nodes, or look for damage in one with `tandemctl scrub ADDR`\n", a.Addr())
	began := timestamppb.Now()
	for _, s := range []*clienttest.Storage{a, b} { // one process by two names
		s.OnStatus(func(st *storagev1.StatusResponse) { st.NodeId, st.StartedAt = 3, began })
	}
	if r := ctl(t, "", "", "verify", a.Addr(), b.Addr()); r.code != exitFailed || !strings.Contains(r.err, "are the same node, broker-a/3: there is nothing to compare") || r.out != "" {
		t.Errorf("%+v", r)
	}
	b.OnStatus(func(st *storagev1.StatusResponse) { st.NodeId, st.StartedAt = 4, began })
	b.SetLog(0, log[:7000])
	r = ctl(t, "", "", "verify", a.Addr(), b.Addr(), "--wait", "0s", "--progress")
	if r.code != exitFailed || !strings.Contains(r.out, "DIFFERENT: equal from 0 to 7000, where one log ends") || !strings.Contains(r.err, "] 100%  6.8 KiB of 6.8 KiB") {
		t.Errorf("%+v", r)
	}
}
