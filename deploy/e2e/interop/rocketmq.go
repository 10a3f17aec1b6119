package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mark stands before the lines that the Java sources print for the harness.
const mark = "> "

//go:embed peer
var peerFiles embed.FS

// rocketmq is one version of it, as Maven resolved it.
type rocketmq struct {
	version, classpath string
	home               string // ROCKETMQ_HOME, and where peer/ is
}

// rocketmq resolves a version once.
func (t *theatre) rocketmq(ctx context.Context, version string) (*rocketmq, error) {
	if q, ok := t.peers[version]; ok {
		return q, nil
	}
	q := &rocketmq{version: version, home: filepath.Join(t.dir, "rocketmq-"+version)}
	for _, name := range []string{"pom.xml", "Client.java", "Records.java"} {
		b, err := peerFiles.ReadFile("peer/" + name)
		if err != nil {
			return nil, err
		}
		if err := write(filepath.Join(q.home, name), bytes.NewReader(b)); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"logback_namesrv.xml", "logback_broker.xml"} { // 4.9 does not start without them
		const silent = `<configuration><root level="OFF"/></configuration>`
		if err := write(filepath.Join(q.home, "conf", name), strings.NewReader(silent)); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(q.home, "classpath")
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(q.home, "pom.xml"), "-Drocketmq="+version,
		"dependency:build-classpath", "-Dmdep.outputFile="+list)
	if out, err := mvn.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("resolve RocketMQ %s by Maven: %w: %s", version, err, bytes.TrimSpace(out))
	}
	b, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	q.classpath = strings.TrimSpace(string(b))
	t.peers[version] = q
	return q, nil
}

// java returns a small JVM for a class or a source file, with dir as its user's home.
func (q *rocketmq) java(dir string, args ...string) *exec.Cmd {
	flags := []string{
		"-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-XX:ActiveProcessorCount=2", "-XX:-UsePerfData",
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
		"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
		"-Dfile.encoding=UTF-8", "-Duser.home=" + dir, "-Dlogback.configurationFile=" + filepath.Join(q.home, "conf", "logback_broker.xml"),
		"-cp", q.classpath,
	}
	cmd := exec.Command("java", append(flags, args...)...) //nolint:noctx // the stage ends it
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+q.home)
	return cmd
}

// nameServer starts a name server and returns its address.
func (s *stage) nameServer(ctx context.Context, q *rocketmq) (*process, string, error) {
	port, err := s.ports(1)
	if err != nil {
		return nil, "", err
	}
	conf := filepath.Join(s.dir, "namesrv", "namesrv.conf")
	if err := write(conf, strings.NewReader(fmt.Sprintf("listenPort=%d\n", port))); err != nil {
		return nil, "", err
	}
	p, err := s.start("namesrv", q.java(filepath.Dir(conf), "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf))
	if err != nil {
		return nil, "", err
	}
	return p, fmt.Sprintf("127.0.0.1:%d", port), p.printed(ctx, "boot success")
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
func (s *stage) broker(ctx context.Context, q *rocketmq, name, store string, settings ...string) (*broker, error) {
	vip, err := s.ports(4) // a broker also listens two below listenPort; 4.9 puts the replication port one above it
	if err != nil {
		return nil, err
	}
	b := &broker{store: store, addr: fmt.Sprintf("127.0.0.1:%d", vip+2), haAddr: fmt.Sprintf("127.0.0.1:%d", vip+3)}
	conf := fmt.Sprintf(`brokerClusterName=interop
brokerName=broker-a
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
listenPort=%d
haListenPort=%d
storePathRootDir=%s
storePathCommitLog=%s/commitlog
%s%s
`, vip+2, vip+3, store, store, smallFiles, strings.Join(settings, "\n"))
	file := filepath.Join(s.dir, name, "broker.conf")
	if err := write(file, strings.NewReader(conf)); err != nil {
		return nil, err
	}
	b.process, err = s.start(name, q.java(filepath.Dir(file), "org.apache.rocketmq.broker.BrokerStartup", "-c", file))
	if err != nil {
		return nil, err
	}
	return b, b.printed(ctx, "boot success")
}

// rocketClient is RocketMQ's own client: peer/Client.java.
type rocketClient struct {
	*process
	in    io.WriteCloser
	lines chan string
}

func (s *stage) rocketClient(ctx context.Context, q *rocketmq, nameServer string) (*rocketClient, error) {
	dir := filepath.Join(s.dir, "client")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd := q.java(dir, filepath.Join(q.home, "Client.java"), nameServer)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	c := &rocketClient{in: in, lines: make(chan string, 16)}
	c.process, err = s.start("client", cmd)
	if err = errors.Join(err, w.Close()); err != nil {
		_ = out.Close() // nothing was read
		return nil, err
	}
	go c.read(out)
	_, _, err = c.answer(ctx)
	return c, err
}

// read hands over the lines that are meant for the harness.
func (c *rocketClient) read(out *os.File) {
	defer close(c.lines)
	defer out.Close() //nolint:errcheck // read only
	for sc := bufio.NewScanner(out); sc.Scan(); {
		if line, ok := strings.CutPrefix(sc.Text(), mark); ok {
			select {
			case c.lines <- line:
			case <-c.done:
				return
			}
		}
	}
}

// ask sends a command and returns its result and the lines before it.
func (c *rocketClient) ask(ctx context.Context, format string, args ...any) (string, []string, error) {
	command := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(c.in, command+"\n"); err != nil {
		return "", nil, fmt.Errorf("tell RocketMQ's client %q: %w", command, err)
	}
	result, lines, err := c.answer(ctx)
	if err != nil {
		err = fmt.Errorf("RocketMQ's client, %q: %w", command, err)
	}
	return result, lines, err
}

func (c *rocketClient) answer(ctx context.Context) (string, []string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*patience, fmt.Errorf("no answer within %v", 2*patience))
	defer cancel()
	var before []string
	for {
		select {
		case line, ok := <-c.lines:
			switch {
			case !ok:
				return "", nil, errors.New("it ended")
			case line == "ok" || strings.HasPrefix(line, "ok "):
				return strings.TrimSpace(line[2:]), before, nil
			case strings.HasPrefix(line, "error "):
				return "", nil, errors.New(line)
			}
			before = append(before, line)
		case <-ctx.Done():
			return "", nil, context.Cause(ctx)
		}
	}
}

// records returns what RocketMQ's own decoder reads in a store's log, one line a record; see peer/Records.java.
func (s *stage) records(ctx context.Context, q *rocketmq, store string) ([]string, error) {
	cmd := q.java(s.dir, filepath.Join(q.home, "Records.java"), filepath.Join(store, "commitlog"))
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
		return nil, fmt.Errorf("RocketMQ %s's decoder gives up on %s: exit code %d", q.version, store, code)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line, ok := strings.CutPrefix(line, mark); ok {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines, nil
}
