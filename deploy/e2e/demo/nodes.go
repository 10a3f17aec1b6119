package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// unit is one process of the cluster, or the container of the compose service of its name.
type unit struct {
	name, binary string
	folder       string // of its data; a config sync node has its storage's, as in RocketMQ
	addr, debug  string // as reached from here
}

// processes are units as processes on loopback.
type processes struct {
	bin, dir string
	units    map[string]*unit
	running  map[string]*exec.Cmd
}

func newProcesses(bin, dir string, c *cluster) (*processes, error) {
	p := &processes{bin: bin, dir: dir, units: c.units, running: map[string]*exec.Cmd{}}
	for _, b := range []string{"storage", "configsync", "ledger"} {
		if _, err := os.Stat(filepath.Join(bin, b)); err != nil {
			return nil, fmt.Errorf("no %s binary: %w; run make build", b, err)
		}
	}
	for i := range c.names {
		text, err := c.storageConfig(i)
		if err != nil {
			return nil, err
		}
		err = errors.Join(p.write(c.names[i], text), p.write(c.configs[i], c.configSyncConfig(i)), p.write(c.ledgers[i], c.ledgerConfig(i)))
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (c *cluster) list(names []string, prefix func(i int) string) string {
	var all []string
	for i, n := range names {
		all = append(all, prefix(i)+c.addr(n))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func noPrefix(int) string { return "" }

func (c *cluster) storageConfig(i int) (string, error) {
	role := "SLAVE"
	if i == 0 {
		role = "SYNC_MASTER"
	}
	ha, err := c.ports.Take(1)
	if err != nil {
		return "", err
	}
	u := c.units[c.names[i]]
	return fmt.Sprintf(`brokerClusterName: demo
brokerName: broker-a
brokerId: %d
brokerRole: %s
storePathRootDir: %s
listen: %s
haListen: 127.0.0.1:%d
ha:
  peers: %s
  required: 1
telemetry:
  debugListen: %s
`, i, role, u.folder, u.addr, ha, c.list(c.names, noPrefix), u.debug), nil
}

func (c *cluster) configSyncConfig(i int) string {
	u := c.units[c.configs[i]]
	return fmt.Sprintf(`brokerClusterName: demo
brokerName: broker-a
brokerId: %d
storePathRootDir: %s
listen: %s
peers: %s
storage:
  address: %s
telemetry:
  debugListen: %s
`, i, u.folder, u.addr, c.list(c.configs, noPrefix), c.addr(c.names[i]), u.debug)
}

func (c *cluster) ledgerConfig(i int) string {
	u := c.units[c.ledgers[i]]
	return fmt.Sprintf(`group: demo
selfId: %s
peers: %s
storePath: %s
listen: %s
mappedFileSizeForEntryData: 4MiB
mappedFileSizeForEntryIndex: 1MiB
telemetry:
  debugListen: %s
`, memberID(i), c.list(c.ledgers, func(i int) string { return memberID(i) + "-" }), u.folder, u.addr, u.debug)
}

func (p *processes) config(name string) string { return filepath.Join(p.dir, name+".yaml") }

func (p *processes) write(name, text string) error {
	return os.WriteFile(p.config(name), []byte(text), 0o600)
}

func (p *processes) start(names ...string) error {
	for _, name := range names {
		if err := p.startOne(name); err != nil {
			return err
		}
	}
	return nil
}

func (p *processes) startOne(name string) error {
	log, err := os.OpenFile(filepath.Join(p.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()                                                                          //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(filepath.Join(p.bin, p.units[name].binary), "-config", p.config(name)) //nolint:noctx // it is killed by name
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running[name] = cmd
	return nil
}

func (p *processes) kill(names ...string) error {
	return p.end(syscall.SIGKILL, names)
}

func (p *processes) stop(names ...string) error {
	return p.end(syscall.SIGTERM, names)
}

// end signals all of them before it waits for the first.
func (p *processes) end(sig os.Signal, names []string) error {
	for _, name := range names {
		if err := p.running[name].Process.Signal(sig); err != nil {
			return fmt.Errorf("%s has ended by itself: %w", name, err)
		}
	}
	for _, name := range names {
		err := p.running[name].Wait()
		delete(p.running, name)
		if err != nil && sig == syscall.SIGTERM {
			return fmt.Errorf("%s was told to stop: %w", name, err)
		}
	}
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

// containers are the units of a compose file.
type containers struct {
	file  string
	units map[string]*unit
}

func (d *containers) compose(args ...string) error {
	cmd := exec.Command("docker", append([]string{"compose", "-f", d.file}, args...)...) //nolint:noctx // short
	cmd.Env = append(os.Environ(), fmt.Sprintf("TANDEM_UID=%d", os.Getuid()), fmt.Sprintf("TANDEM_GID=%d", os.Getgid()))
	for _, u := range d.units {
		_, port, _ := net.SplitHostPort(u.addr)
		_, debug, _ := net.SplitHostPort(u.debug)
		key := "TANDEM_" + strings.ToUpper(strings.ReplaceAll(u.name, "-", "_"))
		cmd.Env = append(cmd.Env, key+"_PORT="+port, key+"_DEBUG_PORT="+debug, key+"_DATA="+u.folder)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("docker compose %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (d *containers) start(names ...string) error {
	return d.compose(append([]string{"up", "-d", "--no-deps"}, names...)...)
}

func (d *containers) stop(names ...string) error {
	return d.compose(append([]string{"stop", "-t", "20"}, names...)...)
}

func (d *containers) kill(names ...string) error {
	return d.compose(append([]string{"kill", "-s", "KILL"}, names...)...)
}

func (d *containers) stopAll() {
	if err := d.compose("down", "-v", "-t", "20"); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
}
