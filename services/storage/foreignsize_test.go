package main

import (
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/service"
)

// TestFileSizeUnlikeTheLegacyMasters: such a master does not tell the size of its files. A slave with another ends and says so, be
// it larger or smaller, and again when it is started again.
func TestFileSizeUnlikeTheLegacyMasters(t *testing.T) {
	t.Parallel()
	master := alone(t, legacy).start().awaitOpen()
	for range 12 {
		master.put(noise(40 << 10))
	}
	theirs := master.cfg.MappedFileSizeCommitLog
	for i, size := range []service.Size{theirs * 2, theirs / 2, theirs / 4} {
		n := newNode(t, int64(i+1), slave, func(c *Config) {
			c.Master = Upstream{Address: master.cfg.HAListen, Legacy: true}
			c.MappedFileSizeCommitLog, c.MaxMessageSize = size, 4<<10
			c.Telemetry.DebugListen = ""
		})
		for range 2 {
			out, code := n.runToEnd()
			if code != 1 || !strings.Contains(out, "FILE_SIZE_DIFFERS") || strings.Contains(out, "bad record in the log") {
				t.Errorf("files of %v, the master's have %v: exit code %d:\n%s", size, theirs, code, out)
			}
		}
	}
}
