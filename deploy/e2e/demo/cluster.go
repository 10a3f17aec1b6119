package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/pkg/grpcx"
	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// nodes runs storages.
type nodes interface {
	start(name string) error
	kill(name string) error // -9
	stopAll()
}

// cluster is the nodes and the connections to them.
type cluster struct {
	nodes
	dir   string // a folder a node
	names []string
	addrs map[string]string
	conns map[string]*grpc.ClientConn
}

func newCluster(bin, compose, dir string, names []string) (*cluster, error) {
	c := &cluster{dir: dir, names: names, addrs: map[string]string{}, conns: map[string]*grpc.ClientConn{}}
	for _, n := range names {
		if err := os.MkdirAll(c.folder(n), 0o755); err != nil {
			return nil, err
		}
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		c.addrs[n] = fmt.Sprintf("127.0.0.1:%d", port)
		if c.conns[n], err = grpcx.Dial(c.addrs[n], grpcx.ClientOptions{}); err != nil {
			return nil, err
		}
	}
	if compose != "" {
		c.nodes = &containers{file: compose, dir: dir, addrs: c.addrs}
		return c, nil
	}
	p, err := newProcesses(bin, dir, names, c.addrs)
	c.nodes = p
	return c, err
}

func (c *cluster) folder(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) stop() {
	for _, conn := range c.conns {
		_ = conn.Close() // nothing is sent any more
	}
	c.stopAll()
}

func (c *cluster) admin(name string) storagev1.StorageAdminServiceClient {
	return storagev1.NewStorageAdminServiceClient(c.conns[name])
}

func (c *cluster) message(name string) storagev1.MessageServiceClient {
	return storagev1.NewMessageServiceClient(c.conns[name])
}

// await asks name for its status until ok says yes; ok also gets every answer to show progress.
func (c *cluster) await(ctx context.Context, name, what string, ok func(*storagev1.StatusResponse) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last *storagev1.StatusResponse
	for {
		st, err := c.admin(name).Status(ctx, &storagev1.StatusRequest{}, grpc.WaitForReady(true))
		if err == nil {
			if last = st; ok(st) {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %s did not happen within 30 s (%w); last status: %v", name, what, ctx.Err(), last)
		}
	}
}

// Ports are taken from here: above the well-known ones, below those that the kernel gives to outgoing connections, so that
// nothing takes the port of a node that was killed.
const firstPort, lastPort = 12000, 32000

var givenPorts = map[int]bool{}

func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if givenPorts[port] {
			continue
		}
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			givenPorts[port] = true
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port")
}

// processes are nodes as processes on loopback.
type processes struct {
	bin, dir string
	running  map[string]*exec.Cmd
}

func newProcesses(bin, dir string, names []string, addrs map[string]string) (*processes, error) {
	p := &processes{bin: filepath.Join(bin, "storage"), dir: dir, running: map[string]*exec.Cmd{}}
	if _, err := os.Stat(p.bin); err != nil {
		return nil, fmt.Errorf("no storage binary: %w; run make build", err)
	}
	var peers []string
	for _, n := range names {
		peers = append(peers, addrs[n])
	}
	for i, n := range names {
		role := "SLAVE"
		if i == 0 {
			role = "SYNC_MASTER"
		}
		ha, err := freePort()
		if err != nil {
			return nil, err
		}
		debug, err := freePort()
		if err != nil {
			return nil, err
		}
		text := fmt.Sprintf(`brokerClusterName: demo
brokerName: broker-a
brokerId: %d
brokerRole: %s
storePathRootDir: %s
listen: %s
haListen: 127.0.0.1:%d
ha:
  peers: [%s]
  required: 1
telemetry:
  debugListen: 127.0.0.1:%d
`, i, role, filepath.Join(dir, n), addrs[n], ha, strings.Join(peers, ", "), debug)
		if err := os.WriteFile(p.config(n), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *processes) config(name string) string { return filepath.Join(p.dir, name+".yaml") }

func (p *processes) start(name string) error {
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                                     //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(p.bin, "-config", p.config(name)) //nolint:noctx // it is killed by name
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running[name] = cmd
	return nil
}

func (p *processes) kill(name string) error {
	cmd := p.running[name]
	delete(p.running, name)
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	_ = cmd.Wait() // killed
	return nil
}

func (p *processes) stopAll() {
	for _, cmd := range p.running {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	}
	for _, cmd := range p.running {
		_ = cmd.Wait()
	}
}

// containers are the nodes of a compose file.
type containers struct {
	file, dir string
	addrs     map[string]string
}

func (d *containers) compose(args ...string) error {
	cmd := exec.Command("docker", append([]string{"compose", "-f", d.file}, args...)...) //nolint:noctx // short
	cmd.Env = append(os.Environ(), fmt.Sprintf("TANDEM_UID=%d", os.Getuid()), fmt.Sprintf("TANDEM_GID=%d", os.Getgid()))
	for name, addr := range d.addrs {
		_, port, _ := net.SplitHostPort(addr)
		key := "TANDEM_" + strings.ToUpper(name)
		// Debug port 0: any free one.
		cmd.Env = append(cmd.Env, key+"_PORT="+port, key+"_DEBUG_PORT=0", key+"_DATA="+filepath.Join(d.dir, name))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("docker compose %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (d *containers) start(name string) error { return d.compose("up", "-d", "--no-deps", name) }

func (d *containers) kill(name string) error { return d.compose("kill", "-s", "KILL", name) }

func (d *containers) stopAll() {
	if err := d.compose("down", "-v", "-t", "20"); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
}
