package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// TestACutOnADiskThatFills: the log of a slave is cut, and then there is no room left to write down that its queues are. It follows only when
// they are cut too, by itself, also after a restart on the full disk: their units would point into other messages, and those of the new reign
// would be in no queue.
func TestACutOnADiskThatFills(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %t", restart), func(t *testing.T) {
			t.Parallel()
			m := alone(t)
			disk := m.inMemory()
			s := follower(t, 1, m)
			slaveDisk := s.inMemory()
			m.start().awaitOpen()
			s.start()
			put := func(what string, n int) {
				for i := range n {
					m.put(fmt.Appendf(nil, "%s %d", what, i))
				}
			}
			put("first", 16)
			m.halt()
			before := disk.CrashClone(memfs.OnlySynced)
			m.start().awaitOpen()
			put("lost", 64)
			s.awaitEnd(m.end64())
			s.await("its queues", func(st *storagev1.StatusResponse) bool {
				return st.GetWatermarks().GetDispatchedOffset() == m.end64()
			})
			if _, err := s.admin().FlushNow(t.Context(), &storagev1.FlushNowRequest{}); err != nil {
				t.Fatal(err)
			}
			m.halt()
			var full, met atomic.Bool
			full.Store(true)
			hook := func(op memfs.Op) memfs.Action {
				if full.Load() && op.Kind.Mutates() && strings.Contains(op.Name, "tandem/queues") {
					met.Store(true)
					return memfs.FailBefore(vfs.ErrNoSpace)
				}
				return memfs.Proceed
			}
			slaveDisk.SetHook(hook)
			m.fs = before
			m.start().awaitOpen()
			put("second", 200)
			eventually(t, "the full disk", met.Load)
			if restart {
				crashed := slaveDisk.CrashClone(memfs.All)
				full.Store(false)
				s.halt()
				full.Store(true)
				met.Store(false)
				crashed.SetHook(hook)
				s.fs = crashed
				s.start()
				eventually(t, "the full disk after the restart", met.Load)
			}
			full.Store(false)
			s.awaitEnd(m.end64())
			s.await("its queues", func(st *storagev1.StatusResponse) bool {
				return st.GetWatermarks().GetDispatchedOffset() == m.end64()
			})
			want, got := m.bodies("TopicTest"), s.bodies("TopicTest")
			if !maps.EqualFunc(want, got, slices.Equal) {
				t.Errorf("the master's queues have %d messages, the slave's %d, or others", len(want), len(got))
			}
			same(t, m, s)
		})
	}
}
