package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// playFlags are those of playground.
type playFlags struct {
	slaves    int
	acks      int
	async     bool
	dir       string
	from      string
	bin       string
	ledger    bool
	ledgerBin string
	configBin string
	noConfig  bool
	ready     time.Duration
	runsFor   time.Duration
	fileSize  int64
}

func (a *app) playgroundCommand() *cobra.Command {
	var f playFlags
	cmd := &cobra.Command{
		Use:   "playground",
		Short: "Start a master and slaves, or a ledger's group, on this machine and say what to try",
		Long: "Start a master and its slaves as child processes on free loopback ports, each with a config sync node beside it, wait\n" +
			"until they are in sync, and print their addresses and what to try; with --ledger a ledger's group of three nodes\n" +
			"instead. Ctrl-C stops all; the data stays where the last line says. The same --dir again goes on with its data.",
		Example: "  tandemctl playground\n" +
			"  tandemctl playground --ledger\n" +
			"  tandemctl playground --slaves 3 --acks 2 --dir ./play\n" +
			"  tandemctl playground --from /opt/rocketmq/store",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.playground(cmd.Context(), &f) },
	}
	fs := cmd.Flags()
	fs.IntVar(&f.slaves, "slaves", 2, "slaves, 0 to 8")
	fs.IntVar(&f.acks, "acks", 1, "slaves that PUT_OK needs (ha.required)")
	fs.BoolVar(&f.async, "async", false, "an async master: PUT_OK waits for no slave")
	fs.StringVar(&f.dir, "dir", "", "`folder` for data, configs and logs; empty: a new one among the temporary files")
	fs.StringVar(&f.from, "from", "", "begin with a copy of this `store` folder that RocketMQ (or Tandem) wrote")
	fs.BoolVar(&f.ledger, "ledger", false, "a ledger's group of three nodes instead of storages")
	fs.StringVar(&f.ledgerBin, "ledger-bin", "", "the ledger `binary`; empty: beside tandemctl, or in PATH")
	fs.BoolVar(&f.noConfig, "no-configsync", false, "storages only: no topics, groups and offsets")
	fs.StringVar(&f.configBin, "configsync-bin", "", "the configsync `binary`; empty: beside tandemctl, or in PATH")
	fs.StringVar(&f.bin, "storage-bin", "", "the storage `binary`; empty: beside tandemctl, or in PATH")
	fs.DurationVar(&f.ready, "ready-timeout", time.Minute, "longest `time` until the nodes are in sync")
	fs.DurationVar(&f.runsFor, "for", 0, "stop after this `time`; 0: at Ctrl-C")
	fs.Int64Var(&f.fileSize, "file-size", 64<<20, "`bytes` of a log file where none exists yet")
	return cmd
}

func (f *playFlags) check() error {
	switch {
	case f.slaves < 0 || f.slaves > 8:
		return usagef("--slaves %d is not within 0 and 8", f.slaves)
	case f.slaves > 0 && (f.acks < 1 || f.acks > f.slaves):
		return usagef("--acks %d is not within 1 and the %d slaves", f.acks, f.slaves)
	case f.fileSize < 4096:
		return usagef("--file-size %d is below 4096", f.fileSize)
	case f.ledger && f.fileSize%ledgerFileUnit != 0:
		return usagef("--file-size %d is not a multiple of %d", f.fileSize, ledgerFileUnit)
	case f.ledger && (f.from != "" || f.async):
		return usagef("--from and --async are about storages: they do not go with --ledger")
	}
	return checkStore(f.from)
}

func (a *app) playground(ctx context.Context, f *playFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	bin, configBin, err := f.binaries()
	if err != nil {
		return err
	}
	if f.dir == "" {
		if f.dir, err = os.MkdirTemp("", "tandem-playground-"); err != nil {
			return fmt.Errorf("make a folder for the data: %w", err)
		}
	}
	if f.dir, err = filepath.Abs(f.dir); err != nil {
		return err
	}
	if err := apart(f.from, f.dir); err != nil {
		return err
	}
	lock, err := claim(f.dir)
	if err != nil {
		return err
	}
	p := &playground{a: a, f: f, bin: bin, configBin: configBin}
	err = p.prepare()
	if err == nil {
		err = errors.Join(p.play(ctx), p.stop())
		p.leave()
	}
	return errors.Join(err, lock.Close())
}

// leave says what stays behind, and how to go on with it or remove it: what is not the playground's own is not named.
func (p *playground) leave() {
	dir := shellWord(p.f.dir)
	names := markFile
	for _, n := range p.nodes {
		names += " " + n.name
	}
	sayf(p.a.out, "\nStopped. Data, configs and logs are in %s\n", p.f.dir)
	how := fmt.Sprintf("--slaves %d", p.f.slaves)
	if p.f.slaves > 0 && p.f.acks != 1 {
		how += fmt.Sprintf(" --acks %d", p.f.acks)
	}
	if p.f.async {
		how += " --async"
	}
	if p.f.noConfig {
		how += " --no-configsync"
	}
	if p.f.ledger {
		how = "--ledger"
	}
	sayf(p.a.out, "  again:  %s playground %s --dir %s\n  away:   cd %s && rm -r %s\n", p.a.name(), how, dir, dir, names)
}

// markFile in a folder says that it is a playground's. Who plays holds its lock.
const markFile = "playground.lock"

// claim makes the folder, or takes one that is empty or a playground's already, and locks it: nothing else there is touched.
func claim(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &usageError{fmt.Errorf("cannot make the folder of --dir: %w", err)}
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, &usageError{fmt.Errorf("cannot use the folder of --dir: %w", err)}
	}
	mark := filepath.Join(dir, markFile)
	if _, err := os.Lstat(mark); err != nil && len(names) > 0 {
		return nil, usagef("--dir %s has files and is no playground's (there is no %s in it): name a new or empty folder", dir, markFile)
	}
	lock, err := durable.Lock(vfs.OS(), mark)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, errdefs.Newf(errdefs.FailedPrecondition, "PLAYGROUND_RUNS", "a playground runs in %s already", dir).
			WithRemedy("stop it with Ctrl-C where it runs, or choose another --dir")
	}
	if err != nil {
		return nil, &usageError{fmt.Errorf("cannot use the folder of --dir: %w", err)}
	}
	return lock, nil
}

// binaries finds those to start; of config sync "" where there is none.
func (f *playFlags) binaries() (bin, configBin string, err error) {
	if f.ledger {
		bin, err = serviceBinary("ledger", f.ledgerBin)
		return bin, "", err
	}
	if bin, err = serviceBinary("storage", f.bin); err != nil || f.noConfig {
		return bin, "", err
	}
	configBin, err = serviceBinary("configsync", f.configBin)
	return bin, configBin, err
}

// serviceBinary finds a service's binary; name is what its flag says.
func serviceBinary(service, name string) (string, error) {
	if name != "" {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
		return "", usagef("--%s-bin %s is no executable file", service, name)
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find out where tandemctl is: %w", err)
	}
	beside := filepath.Join(filepath.Dir(self), service)
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(service); err == nil {
		return filepath.Abs(path)
	}
	reason := "NO_" + strings.ToUpper(service) + "_BINARY"
	return "", errdefs.Newf(errdefs.NotFound, reason, "there is no `%s` binary beside tandemctl (%s) nor in PATH", service, filepath.Dir(self)).
		WithRemedy("build it with `make build`, or name it with --%s-bin", service)
}

// play starts all nodes and returns when ctx or --for ends, or a node will not start.
func (p *playground) play(ctx context.Context) error {
	for _, n := range p.all() {
		if err := p.start(n); err != nil {
			return err
		}
	}
	what, await, introduce := fmt.Sprintf("a master and %s", plural(len(p.nodes)-1, "slave")), p.awaitStorages, p.introduce
	if p.f.ledger {
		what, await, introduce = plural(len(p.nodes), "node"), p.awaitGroup, p.introduceGroup
	}
	sayf(p.a.errOut, "starting %s in %s\n", what, p.f.dir)
	ready, cancel := context.WithTimeout(ctx, p.f.ready)
	err := await(ready)
	cancel()
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	if err != nil {
		return err
	}
	introduce()
	if p.f.runsFor > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, p.f.runsFor)
		defer end()
	}
	return p.mind(ctx)
}

// mind tells of nodes that end until ctx does, or none is left.
func (p *playground) mind(ctx context.Context) error {
	for running := len(p.all()); running > 0; {
		select {
		case <-ctx.Done():
			return nil
		case n := <-p.exits:
			running--
			sayf(p.a.out, "\n%s (pid %d) has ended: %s\n  start it again:  %s -config %s\n  its log:         %s\n",
				n.name, n.pid, n.ended(), n.bin, n.config, n.logFile)
		}
	}
	return errdefs.New(errdefs.Unavailable, "ALL_ENDED", "all nodes have ended").WithRemedy("their logs are under %s", p.f.dir)
}

// introduce prints addresses and what to try.
func (p *playground) introduce() {
	rows := make([][]string, 0, len(p.nodes))
	for _, n := range p.nodes {
		rows = append(rows, []string{n.name, n.listen, n.haListen, n.debugListen, itoa(n.pid), n.dir})
	}
	w := p.a.out
	say(w, "\nReady.")
	say(w)
	table(w, []string{"NODE", "GRPC", "RAW", "DEBUG", "PID", "FOLDER"}, rows)
	p.listConfigs(w)
	sayf(w, "\nTry, in another terminal:\n\n  export %s=%s\n", addrVar, p.addresses())
	ctl := p.a.name()
	sayf(w, "  %[1]s put --topic demo hello\n  %[1]s get --topic demo\n  %[1]s tail --topic demo\n  %[1]s status -w\n", ctl)
	master := p.nodes[0]
	if len(p.nodes) > 1 {
		slave := p.nodes[1]
		sayf(w, "  %[1]s verify %[2]s %[3]s\n  %[1]s get --addr %[3]s --topic demo   # read from a slave\n", ctl, master.listen, slave.listen)
		sayf(w, "  kill -9 %d   # %s; then put, and look at status\n", slave.pid, slave.name)
	}
	p.introduceConfigs(w)
	sayf(w, "  curl -s http://%s/metrics\n\nCtrl-C stops everything.\n", master.debugListen)
}
