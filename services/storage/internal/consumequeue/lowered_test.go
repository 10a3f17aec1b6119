package consumequeue

import (
	"errors"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// TestACutIsRepeatedUntilItIsSaved: a cut behind the last unit takes nothing from a queue, but the summary claims more of the log than there is.
// Where it could not be saved, the next Truncate saves it: else a restart would skip what stands there then.
func TestACutIsRepeatedUntilItIsSaved(t *testing.T) {
	fsys := newFS(t)
	s := open(t, fsys, Options{FileSize: 100})
	_, err := s.Gather([]byte("T"), 0, 0, 1000, 100, 9)
	check(t, err)
	check(t, s.Commit(5000, 0)) // what lies between is in no queue, such as prepared messages
	check(t, s.Flush())
	fsys.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind.Mutates() && strings.Contains(op.Name, "tandem/queues") {
			return memfs.FailBefore(vfs.ErrNoSpace)
		}
		return memfs.Proceed
	})
	if err := s.Truncate(2000); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("cut on a full disk: %v", err)
	}
	fsys.SetHook(nil)
	check(t, s.Truncate(2000))
	after := open(t, fsys.CrashClone(memfs.OnlySynced), Options{FileSize: 100})
	if from, err := after.Resume(0, 9000); err != nil || from != 2000 { // the log has grown again
		t.Errorf("after a restart the log is read from %d, %v", from, err)
	}
	check(t, after.Close())
	check(t, s.Close())
}
