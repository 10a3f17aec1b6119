package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
)

//go:embed peer
var peerFiles embed.FS

// rocketmq resolves a version once; its home gets the Java sources of peer/.
func (t *theatre) rocketmq(ctx context.Context, version string) (*rocketmq.RocketMQ, error) {
	if q, ok := t.peers[version]; ok {
		return q, nil
	}
	q, err := rocketmq.Resolve(ctx, t.dir, version)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Client.java", "Records.java"} {
		b, err := peerFiles.ReadFile("peer/" + name)
		if err != nil {
			return nil, err
		}
		if err := write(filepath.Join(q.Home, name), bytes.NewReader(b)); err != nil {
			return nil, err
		}
	}
	t.peers[version] = q
	return q, nil
}

// small makes a JVM take little, as several run at a time.
var small = []string{
	"-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
	"-XX:ActiveProcessorCount=2", "-XX:-UsePerfData",
}

// nameServer starts a name server and returns its address.
func (s *stage) nameServer(ctx context.Context, q *rocketmq.RocketMQ) (*process, string, error) {
	port, err := s.ports.Take(1)
	if err != nil {
		return nil, "", err
	}
	cmd, err := q.NameServer(filepath.Join(s.dir, "namesrv"), port, small)
	if err != nil {
		return nil, "", err
	}
	p, err := s.start("namesrv", cmd)
	if err != nil {
		return nil, "", err
	}
	return p, fmt.Sprintf("127.0.0.1:%d", port), p.printed(ctx, rocketmq.Ready)
}

// broker is a broker of RocketMQ's.
type broker struct {
	*process
	store        string
	addr, haAddr string
}

// smallFiles make every roll-over happen within seconds; the rest keeps a shared machine's load and a full disk out of the test.
const smallFiles = `mappedFileSizeCommitLog=262144
mappedFileSizeConsumeQueue=2000
maxHashSlotNum=500
maxIndexNum=2000
maxMessageSize=65536
timerWheelEnable=false
transactionCheckInterval=3600000
fileReservedTime=720
diskMaxUsedSpaceRatio=90
osPageCacheBusyTimeOutMills=20000
waitTimeMillsInSendQueue=15000
sendMessageThreadPoolNums=2
pullMessageThreadPoolNums=2
processReplyMessageThreadPoolNums=1
queryMessageThreadPoolNums=1
adminBrokerThreadPoolNums=2
clientManageThreadPoolNums=2
consumerManageThreadPoolNums=2
heartbeatThreadPoolNums=1
endTransactionThreadPoolNums=2
`

// broker starts a broker on store with these settings besides those that all have.
func (s *stage) broker(ctx context.Context, q *rocketmq.RocketMQ, name, store string, settings ...string) (*broker, error) {
	port, err := s.ports.Take(rocketmq.BrokerPorts)
	if err != nil {
		return nil, err
	}
	b := &broker{store: store}
	b.addr, b.haAddr = rocketmq.Addresses(port)
	cmd, err := q.Broker(filepath.Join(s.dir, name), store, port, small, append([]string{strings.TrimSpace(smallFiles)}, settings...)...)
	if err != nil {
		return nil, err
	}
	if b.process, err = s.start(name, cmd); err != nil {
		return nil, err
	}
	return b, b.printed(ctx, rocketmq.Ready)
}

// rocketClient is RocketMQ's own client: peer/Client.java.
type rocketClient struct {
	*process
	*rocketmq.Told
}

func (s *stage) rocketClient(ctx context.Context, q *rocketmq.RocketMQ, nameServer string) (c *rocketClient, err error) {
	dir := filepath.Join(s.dir, "client")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	c = new(rocketClient)
	cmd := q.Java(dir, small, filepath.Join(q.Home, "Client.java"), nameServer)
	c.Told, err = rocketmq.Connect(ctx, cmd, func() (err error) {
		c.process, err = s.start("client", cmd)
		return err
	})
	return c, err
}

// records returns what RocketMQ's own decoder reads in a store's log, one line a record; see peer/Records.java.
func (s *stage) records(ctx context.Context, q *rocketmq.RocketMQ, store string) ([]string, error) {
	cmd := q.Java(s.dir, small, filepath.Join(q.Home, "Records.java"), filepath.Join(store, "commitlog"))
	var out bytes.Buffer
	cmd.Stdout = &out
	p, err := s.start("records", cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return nil, fmt.Errorf("RocketMQ %s's decoder gives up on %s: exit code %d", q.Version, store, code)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line, ok := strings.CutPrefix(line, rocketmq.Mark); ok {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines, nil
}
