package rollback_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/rollback"
)

// logOf is a log of count records that begins at offset, and where each of them begins.
func logOf(offset int64, count int) (log []byte, starts []int64) {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	for i := range count {
		at := len(log)
		d := message.Draft{Topic: "T", BornTimestamp: 1, BornHost: host, StoreHost: host, Body: fmt.Appendf(nil, "message %d", i)}
		log = message.Append(log, &d, true)
		message.Stamp(log[at:], int64(i), offset+int64(at), 1700000000000)
		starts = append(starts, offset+int64(at))
	}
	return log, append(starts, offset+int64(len(log)))
}

// blankOf is the blank record that fills the rest of a file.
func blankOf(n int64) []byte {
	return append(message.AppendBlank(nil, int32(n)), make([]byte, n-message.BlankSize)...) //nolint:gosec // small
}

// keep writes a kept range as commitlog does: files named by their first byte.
func keep(t *testing.T, fs *memfs.FS, name string, parts map[int64][]byte) {
	t.Helper()
	dir := filepath.Join("root", "rollback", name)
	if err := durable.MkdirAll(fs, dir); err != nil {
		t.Fatal(err)
	}
	for start, b := range parts {
		f, err := fs.OpenFile(filepath.Join(dir, mappedfile.Name(start)), os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteAt(b, 0)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// visits are what a Visitor was told: "body@offset" and "from-to".
type visits struct {
	said []string
	stop int // after so many records; 0: never
}

var errEnough = errors.New("enough")

func (v *visits) Record(offset int64, m *message.View) error {
	v.said = append(v.said, fmt.Sprintf("%s@%d", m.Body, offset))
	if len(v.said) == v.stop {
		return errEnough
	}
	return nil
}

func (v *visits) Gap(from, to int64, reason string) error {
	if reason == "" {
		return errors.New("a gap without a reason")
	}
	v.said = append(v.said, fmt.Sprintf("%d-%d", from, to))
	return nil
}

func TestRecords(t *testing.T) {
	log, at := logOf(1000, 4)
	blank := blankOf(60)
	rotten := slices.Clone(log)
	rotten[at[2]-1000+60] ^= 1
	rec := func(i int) string { return fmt.Sprintf("message %d@%d", i, at[i]) }
	gap := func(from, to int64) string { return fmt.Sprintf("%d-%d", from, to) }
	for name, tc := range map[string]struct {
		from, to int64
		parts    map[int64][]byte
		want     []string
	}{
		"whole":                    {1000, at[4], map[int64][]byte{1000: log}, []string{rec(0), rec(1), rec(2), rec(3)}},
		"begins inside a record":   {1010, at[4], map[int64][]byte{1010: log[10:]}, []string{gap(1010, at[1]), rec(1), rec(2), rec(3)}},
		"ends inside a record":     {1000, at[4] - 5, map[int64][]byte{1000: log[:len(log)-5]}, []string{rec(0), rec(1), rec(2), gap(at[3], at[4]-5)}},
		"nothing but a part":       {1010, 1050, map[int64][]byte{1010: log[10:50]}, []string{gap(1010, 1050)}},
		"rot in the middle":        {1000, at[4], map[int64][]byte{1000: rotten}, []string{rec(0), rec(1), gap(at[2], at[3]), rec(3)}},
		"two files, blank between": {1000, at[4], map[int64][]byte{at[2] - 500_000: nil, 1000: slices.Concat(log[:at[2]-1000], blank)}, []string{rec(0), rec(1)}},
		"zeros behind":             {1000, at[4] + 100, map[int64][]byte{1000: slices.Concat(log, make([]byte, 100))}, []string{rec(0), rec(1), rec(2), rec(3)}},
		"more in the file":         {1000, at[2], map[int64][]byte{1000: log}, []string{rec(0), rec(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			id := fmt.Sprintf("%d-%d-3", tc.from, tc.to)
			keep(t, fs, id, tc.parts)
			r := rollback.New(fs, "root")
			v := &visits{}
			if err := r.Records(t.Context(), id, v); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(v.said, tc.want) {
				t.Errorf("got  %q\nwant %q", v.said, tc.want)
			}
			all, err := r.List()
			if err != nil || len(all) != 1 || all[0].From != tc.from || all[0].To != tc.to || all[0].Epoch != 3 {
				t.Errorf("list %+v, %v", all, err)
			}
		})
	}
}

func TestTwoFiles(t *testing.T) {
	const size = 4096
	first, at := logOf(size-2000, 3)
	first = slices.Concat(first, blankOf(size-at[3]))
	second, more := logOf(size, 2)
	fs := memfs.New()
	id := fmt.Sprintf("%d-%d-7", size-2000, more[2])
	keep(t, fs, id, map[int64][]byte{size - 2000: first, size: second})
	r := rollback.New(fs, "root")
	v := &visits{}
	if err := r.Records(t.Context(), id, v); err != nil || len(v.said) != 5 || v.said[3] != fmt.Sprintf("message 0@%d", size) {
		t.Errorf("%q, %v", v.said, err)
	}
	var got []byte
	next := int64(size - 2000)
	err := r.Bytes(t.Context(), id, 100, func(offset int64, b []byte) error {
		if offset != next || len(b) > 100 {
			return fmt.Errorf("%d bytes at %d, %d is next", len(b), offset, next)
		}
		next += int64(len(b))
		got = append(got, b...)
		return nil
	})
	if err != nil || !bytes.Equal(got, slices.Concat(first, second)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if v = (&visits{stop: 2}); !errors.Is(r.Records(t.Context(), id, v), errEnough) || len(v.said) != 2 {
		t.Errorf("goes on behind an error: %q", v.said)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Records(ctx, id, &visits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}

// TestTheSameRangeAgain: it has a name and records of its own, and what was never named so is no range.
func TestTheSameRangeAgain(t *testing.T) {
	first, at := logOf(1000, 2)
	second := slices.Clone(first[:at[1]-1000])
	fs := memfs.New()
	id := fmt.Sprintf("1000-%d-7", at[2])
	keep(t, fs, id, map[int64][]byte{1000: first})
	keep(t, fs, id+"-2", map[int64][]byte{1000: second})
	for _, other := range []string{"-0", "-1", "-x", "-2-2", "-"} {
		keep(t, fs, id+other, nil)
	}
	r := rollback.New(fs, "root")
	all, err := r.List()
	if err != nil || len(all) != 2 || all[0].Name != id || all[1].Name != id+"-2" || all[1].To != at[2] || all[1].Epoch != 7 {
		t.Errorf("%+v, %v", all, err)
	}
	for name, want := range map[string]int{id: 2, id + "-2": 1} {
		if v := (&visits{}); r.Records(t.Context(), name, v) != nil || len(v.said) != want {
			t.Errorf("%s: %q", name, v.said)
		}
	}
}

func TestNoRange(t *testing.T) {
	fs := memfs.New()
	r := rollback.New(fs, "root")
	if all, err := r.List(); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	for _, name := range []string{"", "1-2-3", "../../etc", "..", "1-2-3/.."} {
		if err := r.Records(t.Context(), name, &visits{}); errdefs.ClassOf(err) != errdefs.NotFound {
			t.Errorf("%q: %v", name, err)
		}
	}
}
