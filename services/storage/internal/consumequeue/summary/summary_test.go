package summary_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/summary"
)

func TestSaveAndLoad(t *testing.T) {
	fsys := memfs.New()
	if err := durable.MkdirAll(fsys, "/s"); err != nil {
		t.Fatal(err)
	}
	if _, err := summary.Load(fsys, "/s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	want := &summary.Summary{FileSize: 100, Dispatched: 77, Queues: []summary.Extent{
		{Topic: "%RETRY%a b", ID: 3, Min: 5, Max: 1 << 40}, {Topic: "T", ID: 0},
	}}
	if err := want.Save(fsys, "/s"); err != nil {
		t.Fatal(err)
	}
	got, err := summary.Load(fsys.CrashClone(memfs.OnlySynced), "/s")
	if err != nil || got.FileSize != 100 || got.Dispatched != 77 || !slices.Equal(got.Queues, want.Queues) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := durable.WriteChecked(fsys, "/s/tandem/queues", []byte("queues 2\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := summary.Load(fsys, "/s"); !errors.Is(err, summary.ErrFormat) {
		t.Errorf("another version: %v", err)
	}
}

func TestWhatIsNoSummary(t *testing.T) {
	for _, text := range []string{
		"", "queues 1\n", "queues 1\nfilesize 1\ndispatched 1", "queues 1\nfilesize x\ndispatched 1\n", "queues 1\ndispatched 1\nfilesize 1\n",
		"queues 1\nfilesize 1\ndispatched -1\n", "queues 1\nfilesize 1\ndispatched 1\n1 2 3\n", "queues 1\nfilesize 1\ndispatched 1\n2 1 0 T\n",
		"queues 1\nfilesize 1\ndispatched 1\n-1 1 0 T\n", "queues 1\nfilesize 1\ndispatched 1\n1 1 -1 T\n", "queues 1\nfilesize 1\ndispatched 1\n1 1 0 \n",
	} {
		if s, err := summary.Decode([]byte(text)); !errors.Is(err, summary.ErrFormat) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("queues 1\nfilesize 60\ndispatched 2348\n4 6 0 TopicTest\n"))
	f.Add([]byte("queues 1\nfilesize 60\ndispatched -1\n"))
	f.Add([]byte("queues 2\n\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := summary.Decode(b)
		if err != nil {
			return
		}
		again, err := summary.Decode(u.Encode())
		if err != nil || again.Dispatched != u.Dispatched || !slices.Equal(again.Queues, u.Queues) {
			t.Errorf("%q decodes to %+v and that to %+v, %v", b, u, again, err)
		}
	})
}
