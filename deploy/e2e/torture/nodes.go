package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
)

// node is one storage process.
type node struct {
	faults.Process
	id   int
	dir  string // of the data
	addr string // gRPC, not through a link
}

// settings are what differs between clusters.
type settings struct {
	refuse bool
	flush  string
}

// slaveGone is the silence after which a master gives a slave up.
const slaveGone = 700 * time.Millisecond

// writeConfig writes a node's config. Times are short, so that a round sees links being given up.
func (n *node) writeConfig(s settings, ha, haAdvertise string, peers []string) error {
	role := "SLAVE"
	if n.id == 0 {
		role = "SYNC_MASTER"
	}
	text := fmt.Sprintf(`brokerClusterName: torture
brokerName: broker-a
brokerId: %d
brokerRole: %s
storePathRootDir: %s
listen: %s
haListen: %s
haAdvertise: %s
flushDiskType: %s
mappedFileSizeCommitLog: 1MiB
mappedFileSizeConsumeQueue: 6000
maxMessageSize: 64KiB
defaultTopicQueueNums: %d
haSendHeartbeatInterval: 100ms
haHousekeepingInterval: %v
slaveTimeout: 500ms
ha:
  peers: [%s]
  masterRole: SYNC_MASTER
  required: 1
  refuseWithoutReplicas: %t
telemetry:
  debugListen: 127.0.0.1:0
`, n.id, role, n.dir, n.addr, ha, haAdvertise, s.flush, queues, slaveGone, strings.Join(peers, ", "), s.refuse)
	return os.WriteFile(n.Config, []byte(text), 0o600)
}

func newNode(bin, dir string, id, port int) *node {
	name := "n" + strconv.Itoa(id)
	return &node{
		Process: faults.Process{
			Name: name, Bin: filepath.Join(bin, "storage"), Config: filepath.Join(dir, name+".yaml"), Log: filepath.Join(dir, name+".log"),
		},
		id: id, dir: filepath.Join(dir, name), addr: faults.Loopback(port),
	}
}
