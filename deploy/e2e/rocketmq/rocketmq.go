package rocketmq

import (
	"bytes"
	"context"
	_ "embed" // pom.xml and Load.java
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Ready is what name servers and brokers print when they are up.
const Ready = "boot success"

// pom is what of RocketMQ is run.
//
//go:embed pom.xml
var pom []byte

//go:embed Load.java
var load []byte

// RocketMQ is one version of it, as Maven resolved it.
type RocketMQ struct {
	Version   string
	Home      string // ROCKETMQ_HOME
	classpath string
}

// Installed says what is missing on this machine to run it.
func Installed() error {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: RocketMQ needs Java 17 and Maven", err)
		}
	}
	return nil
}

// Resolve fetches what is not yet in Maven's own folder, and makes a home below dir.
func Resolve(ctx context.Context, dir, version string) (*RocketMQ, error) {
	q := &RocketMQ{Version: version, Home: filepath.Join(dir, "rocketmq-"+version)}
	if err := os.MkdirAll(filepath.Join(q.Home, "conf"), 0o755); err != nil {
		return nil, err
	}
	// 4.9 does not start without settings for its logs.
	const silent = `<configuration><root level="OFF"/></configuration>`
	for name, text := range map[string][]byte{
		"pom.xml": pom, "Load.java": load, "conf/logback_namesrv.xml": []byte(silent), "conf/logback_broker.xml": []byte(silent),
		"conf/logback_tools.xml": []byte(silent),
	} {
		if err := os.WriteFile(filepath.Join(q.Home, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(q.Home, "classpath")
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(q.Home, "pom.xml"), "-Drocketmq="+version,
		"dependency:build-classpath", "-Dmdep.outputFile="+list)
	if out, err := mvn.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("resolve RocketMQ %s by Maven: %w: %s", version, err, bytes.TrimSpace(out))
	}
	b, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	q.classpath = strings.TrimSpace(string(b))
	return q, nil
}

// Java returns a JVM with these flags for a class or a source file, with dir as its user's home. It is not started.
func (q *RocketMQ) Java(dir string, flags []string, args ...string) *exec.Cmd {
	all := append([]string{
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
		"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
		"-Dfile.encoding=UTF-8", "-Duser.home=" + dir, "-Dlogback.configurationFile=" + filepath.Join(q.Home, "conf", "logback_broker.xml"),
		"-cp", q.classpath,
	}, flags...)
	cmd := exec.Command("java", append(all, args...)...) //nolint:noctx // who starts it ends it
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+q.Home)
	return cmd
}

// Admin returns RocketMQ's own mqadmin with these arguments. It ends with 0 even where it failed: then an exception is on its
// standard error.
func (q *RocketMQ) Admin(dir string, flags []string, args ...string) *exec.Cmd {
	return q.Java(dir, flags, append([]string{"org.apache.rocketmq.tools.command.MQAdminStartup"}, args...)...)
}

// Load returns RocketMQ's own client under load: see Load.java.
func (q *RocketMQ) Load(dir string, flags []string, nameServer string) *exec.Cmd {
	return q.Java(dir, flags, filepath.Join(q.Home, "Load.java"), nameServer)
}

// NameServer returns a name server of a port on 127.0.0.1, with a new folder.
func (q *RocketMQ) NameServer(dir string, port int, flags []string) (*exec.Cmd, error) {
	conf, err := settings(dir, "namesrv.conf", fmt.Sprintf("listenPort=%d", port))
	return q.Java(dir, flags, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", conf), err
}

// BrokerPorts is how many free ports in a row a broker needs: it also listens two below the one that clients use, and 4.9 puts
// replication one above that.
const BrokerPorts = 4

// Addresses returns a broker's two addresses: for clients, and for replication.
func Addresses(firstPort int) (client, ha string) {
	return fmt.Sprintf("127.0.0.1:%d", firstPort+2), fmt.Sprintf("127.0.0.1:%d", firstPort+3)
}

// Broker returns a broker on a store, with a folder for itself, with BrokerPorts ports and these settings besides those that
// all have.
func (q *RocketMQ) Broker(dir, store string, firstPort int, flags []string, more ...string) (*exec.Cmd, error) {
	conf, err := settings(dir, "broker.conf", append([]string{
		"brokerClusterName=tandem", "brokerName=broker-a", "brokerIP1=127.0.0.1", "brokerIP2=127.0.0.1",
		fmt.Sprintf("listenPort=%d", firstPort+2), fmt.Sprintf("haListenPort=%d", firstPort+3),
		"storePathRootDir=" + store, "storePathCommitLog=" + filepath.Join(store, "commitlog"),
	}, more...)...)
	return q.Java(dir, flags, "org.apache.rocketmq.broker.BrokerStartup", "-c", conf), err
}

// settings writes a file of KEY=VALUE lines into dir.
func settings(dir, name string, lines ...string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
