package chunk_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
	"github.com/tandemlog/tandem/services/storage/internal/topics/topicstest"
)

// examples are the hex blocks of the format's description.
func examples(t *testing.T) [][]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.ModuleRoot(t), "services/configsync/internal/table/chunk/FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, m := range regexp.MustCompile("(?s)```hex\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		b, err := hex.DecodeString(strings.Join(strings.Fields(m[1]), ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func read(chunks ...[]byte) (*chunk.Delta, error) {
	var a chunk.Assembly
	for _, c := range chunks {
		if err := a.Add(c); err != nil {
			return nil, err
		}
	}
	return a.Delta()
}

// TestGolden: the example of topics in FORMAT.md says what is written beside it; other tables are refused.
func TestGolden(t *testing.T) {
	var deltas []*chunk.Delta
	for _, b := range examples(t) {
		d, err := read(b)
		if b[1] != 1 {
			if !errors.Is(err, chunk.ErrChunk) {
				t.Errorf("kind %d: %v", b[1], err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		deltas = append(deltas, d)
	}
	want := &chunk.Delta{
		From: chunk.Version{State: 1, Counter: 2, Timestamp: deltas[0].From.Timestamp}, Sum: 0x0123456789abcdef,
		To:      chunk.Version{State: 1, Counter: 3, Timestamp: deltas[0].To.Timestamp},
		Deleted: []string{"gone"}, Topics: []chunk.Topic{{Name: "T", ReadQueues: 16, WriteQueues: 16, Perm: 6}},
	}
	if len(deltas) != 1 || !reflect.DeepEqual(deltas[0], want) {
		t.Errorf("%d examples of topics, the first is %+v, want %+v", len(deltas), deltas[0], want)
	}
}

func some() *chunk.Delta {
	d := &chunk.Delta{To: chunk.Version{State: 2, Counter: 9, Timestamp: 1000}, From: chunk.Version{State: 2, Counter: 7}, Sum: 77}
	for i := range 7 {
		d.Topics = append(d.Topics, chunk.Topic{Name: fmt.Sprint("topic", i), ReadQueues: int32(i), WriteQueues: 2 * int32(i), Perm: int32(i)})
		d.Deleted = append(d.Deleted, fmt.Sprint("gone", i))
	}
	return d
}

func TestRowOfChunks(t *testing.T) {
	for size := range 15 {
		d := some()
		d.Full = size%2 == 0
		chunks := topicstest.Chunks(d, size+1)
		if got, err := read(chunks...); err != nil || !reflect.DeepEqual(got, d) {
			t.Fatalf("size %d: %+v, %v", size+1, got, err)
		}
	}
}

// TestNotWhole: a row that lacks one, has one twice, or is mixed with another is no table.
func TestNotWhole(t *testing.T) {
	chunks := topicstest.Chunks(some(), 3)
	for i := range chunks {
		if d, err := read(slices.Concat(chunks[:i], chunks[i+1:])...); !errors.Is(err, chunk.ErrNotWhole) {
			t.Errorf("without chunk %d: %+v, %v", i, d, err)
		}
		if d, err := read(slices.Insert(slices.Clone(chunks), i, chunks[i])...); !errors.Is(err, chunk.ErrNotWhole) {
			t.Errorf("chunk %d twice: %+v, %v", i, d, err)
		}
		other := some()
		other.Sum++
		mixed := slices.Clone(chunks)
		mixed[i] = topicstest.Chunks(other, 3)[i]
		if d, err := read(mixed...); !errors.Is(err, chunk.ErrNotWhole) {
			t.Errorf("chunk %d of another table: %+v, %v", i, d, err)
		}
	}
	lying := topicstest.Chunks(some(), 100)[0]
	at := 3 + 1 + 3 + 4 + 8 // behind versions and sum: the number of entries
	if lying[at] != 7 {
		t.Fatalf("% x", lying)
	}
	lying[at] = 8
	seal(lying)
	if d, err := read(lying); !errors.Is(err, chunk.ErrNotWhole) {
		t.Errorf("fewer entries than the head says: %+v, %v", d, err)
	}
}

func seal(b []byte) {
	n := len(b) - 4
	binary.BigEndian.PutUint32(b[n:], crc32.Checksum(b[:n], crc32.MakeTable(crc32.Castagnoli)))
}

// TestDamaged: a flipped bit anywhere is seen; behind a good checksum nothing panics, and what is cut is refused.
func TestDamaged(t *testing.T) {
	whole := topicstest.Chunks(some(), 100)[0]
	for i := range whole {
		bad := slices.Clone(whole)
		bad[i] ^= 0x10
		if d, err := read(bad); !errors.Is(err, chunk.ErrChunk) {
			t.Fatalf("byte %d flipped: %+v, %v", i, d, err)
		}
		cut := slices.Clone(whole[:i])
		if i >= 4 {
			seal(cut)
		}
		if d, err := read(cut); err == nil {
			t.Fatalf("cut at %d: %+v", i, d)
		}
	}
}

func FuzzChunk(f *testing.F) {
	f.Add(topicstest.Chunks(some(), 100)[0])
	f.Fuzz(func(t *testing.T, b []byte) {
		if b = slices.Clone(b); len(b) >= 4 {
			seal(b)
		}
		var a chunk.Assembly
		if err := a.Add(b); err == nil && a.Done() {
			d, err := a.Delta()
			if err != nil {
				t.Fatal(err)
			}
			again := topicstest.Chunks(d, 1024)
			if got, err := read(again...); err != nil || len(got.Topics) != len(d.Topics) {
				t.Fatalf("%+v is read as %+v, %v", d, got, err)
			}
		}
	})
}
