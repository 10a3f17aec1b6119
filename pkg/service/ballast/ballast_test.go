package ballast_test

import (
	"runtime"
	"testing"

	"github.com/tandemlog/tandem/pkg/service/ballast"
)

// TestHold: the ballast counts for the collector as long as it is held.
func TestHold(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	release := ballast.Hold()
	held := heap()
	release()
	after := heap()
	if held < before+31<<20 || after >= held {
		t.Errorf("%d bytes before, %d while it is held, %d after", before, held, after)
	}
}
