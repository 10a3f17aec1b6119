package folder_test

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/check/folder"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const fileSize = 8 << 10

// some returns a log of four files.
func some() (log []byte) {
	host := netip.MustParseAddrPort("10.0.0.1:10911")
	for i := range 80 {
		rec := message.Append(nil, &message.Draft{
			Topic: "Topic", QueueID: int32(i % 2), BornHost: host, StoreHost: host, Body: bytes.Repeat([]byte("b"), 100+i*13%300),
		}, true)
		if rest := fileSize - len(log)%fileSize; len(rec)+message.BlankSize > rest {
			log = message.AppendBlank(log, int32(rest))
			log = append(log, make([]byte, (fileSize-len(log)%fileSize)%fileSize)...)
		}
		message.Stamp(rec, int64(i/2), int64(len(log)), 1_700_000_000_000)
		log = append(log, rec...)
	}
	return log
}

// slave makes the folder of a slave that has received n bytes of a log, and leaves it open.
func slave(t *testing.T, n func(total int) int) (*memfs.FS, *commitlog.Log) {
	t.Helper()
	src := some()
	fsys := memfs.New()
	l, _, err := commitlog.Open(fsys, "/s", commitlog.Options{FileSize: fileSize, BootID: "boot"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendRaw(0, [][]byte{src[:n(len(src))]}); err != nil {
		t.Fatal(err)
	}
	text, err := epoch.Lineage{Role: epoch.RoleSlave}.MarshalText()
	if err == nil {
		err = durable.MkdirAll(fsys, "/s/tandem")
	}
	if err == nil {
		err = durable.WriteChecked(fsys, "/s/tandem/lineage", text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fsys, l
}

// A folder of Tandem's whose lineage somebody has removed is told of: the node has forgotten its role and promises.
func TestALineageThatIsGone(t *testing.T) {
	fsys, l := slave(t, all)
	if err := errors.Join(l.Close(true), fsys.RemoveAll("/s/tandem")); err != nil {
		t.Fatal(err)
	}
	r, found := inspect(t, fsys, "/s")
	if r.Damages != 0 || len(found) == 0 || !found[0].Note || found[0].File != "tandem/lineage" || !strings.Contains(found[0].Detail, "is gone") {
		t.Errorf("%+v, %+v", r, found)
	}
}

func all(total int) int { return total }

// Where a slave has stopped, inside of a record or not, is no damage; the queues are empty as nothing was dispatched.
func TestASlavesEndIsSound(t *testing.T) {
	for _, less := range []int{0, 1, 3, 50, 150, 5000, 9000} {
		fsys, l := slave(t, func(total int) int { return total - less })
		if _, err := folder.Check(t.Context(), fsys, "/s", folder.Options{}); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("in use: %v", err)
		}
		end := l.End()
		l.SetReadable(end)
		if err := l.Close(true); err != nil {
			t.Fatal(err)
		}
		// Nothing was dispatched, and a summary says so.
		if err := durable.WriteChecked(fsys, "/s/tandem/queues", []byte("queues 1\nfilesize 2000\ndispatched 0\n")); err != nil {
			if err = errors.Join(durable.MkdirAll(fsys, "/s/tandem"), durable.WriteChecked(fsys, "/s/tandem/queues", []byte("queues 1\nfilesize 2000\ndispatched 0\n"))); err != nil {
				t.Fatal(err)
			}
		}
		ops := fsys.Ops()
		r, found := inspect(t, fsys, "/s")
		if r.Damages != 0 || r.End != end || len(found) > 0 {
			t.Errorf("%d bytes less: %+v, %+v", less, r, found)
		}
		if fsys.Ops() != ops {
			t.Errorf("%d bytes less: the check has changed the folder", less)
		}
	}
}

// A torn end after a crash is a note; the same after a clean stop, or below what was durable, is damage.
func TestTornEnds(t *testing.T) {
	fsys, l := slave(t, all)
	if _, err := l.FlushNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := l.End()
	crash := fsys.CrashClone(memfs.All)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	write := func(fsys *memfs.FS, at int64, b string) {
		f, err := fsys.OpenFile("/s/commitlog/00000000000000024576", 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(b), at-24576)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	write(crash, end, "half a record")
	r, found := inspect(t, crash, "/s")
	if r.Damages != 0 || found[len(found)-1].Kind != check.TornEnd || found[len(found)-1].Offset != end {
		t.Errorf("after a crash: %+v, %+v", r, found)
	}
	write(fsys, end-40, "xxxxx")
	if r, found := inspect(t, fsys, "/s"); r.Damages == 0 || found[1].Kind != check.BadRecord || found[1].End != end {
		t.Errorf("the last record, which was durable: %+v, %+v", r, found)
	}
}

// What the disk does not give is told with its offset, and the rest is checked.
func TestBytesThatCannotBeRead(t *testing.T) {
	fsys, l := slave(t, all)
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindRead && strings.HasSuffix(op.Name, "/commitlog/00000000000000008192") && op.Off <= 4096 && op.Off+op.N > 4096 {
			return memfs.FailBefore(syscall.EIO)
		}
		return memfs.Proceed
	})
	r, found := inspect(t, fsys, "/s")
	if r.Damages < 2 || r.Records < 60 {
		t.Errorf("%+v", r)
	}
	told := false
	for _, f := range found {
		told = told || f.Offset == 8192+4096 && f.End == 8192+8192 && strings.Contains(f.Detail, "input/output error")
	}
	if !told {
		t.Errorf("the page is not told: %+v", found)
	}
}

func TestNoStore(t *testing.T) {
	fsys := memfs.New()
	if _, err := folder.Check(t.Context(), fsys, "/nothing", folder.Options{Now: time.Now()}); !errors.Is(err, folder.ErrNoStore) || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("%v", err)
	}
}
