package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestPlaygroundConfig(t *testing.T) {
	p := &playground{f: &playFlags{slaves: 1, acks: 1, fileSize: 1 << 20}, nodes: []*playNode{
		{name: "master", dir: "/p/master/data", listen: "127.0.0.1:1", haListen: "127.0.0.1:2", debugListen: "127.0.0.1:3"},
		{name: "slave-1", id: 1, dir: "/p/slave-1/data", listen: "127.0.0.1:4", haListen: "127.0.0.1:5", debugListen: "127.0.0.1:6"},
	}}
	want := []string{`brokerClusterName: playground
brokerName: broker-a
brokerId: 0
brokerRole: SYNC_MASTER
storePathRootDir: /p/master/data
listen: 127.0.0.1:1
haListen: 127.0.0.1:2
mappedFileSizeCommitLog: 1048576
ha:
  peers:
  - 127.0.0.1:1
  - 127.0.0.1:4
  required: 1
telemetry:
  debugListen: 127.0.0.1:3
`, `brokerClusterName: playground
brokerName: broker-a
brokerId: 1
brokerRole: SLAVE
storePathRootDir: /p/slave-1/data
listen: 127.0.0.1:4
haListen: 127.0.0.1:5
ha:
  peers:
  - 127.0.0.1:1
  - 127.0.0.1:4
  required: 1
telemetry:
  debugListen: 127.0.0.1:6
`}
	for i, n := range p.nodes {
		got, err := p.configOf(n)
		if err != nil || string(got) != want[i] {
			t.Errorf("%s: %v\n%s\nwant\n%s", n.name, err, got, want[i])
		}
	}
	p.f.async = true
	if got, err := p.configOf(p.nodes[0]); err != nil || !bytes.Contains(got, []byte("brokerRole: ASYNC_MASTER\n")) {
		t.Errorf("%s, %v", got, err)
	}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var pidOf = regexp.MustCompile(`(?m)^slave-2 .* (\d+)  /`)

func TestPlayground(t *testing.T) {
	t.Setenv(fakeVar, "run")
	t.Setenv("TANDEM_STORAGE_LISTEN", "must not reach the nodes")
	dir := t.TempDir()
	out, errOut, stop := startCtl(t, "", "playground", "--no-configsync", "--storage-bin", self(t), "--dir", dir)
	defer stop()
	out.waitFor(t, "Ctrl-C stops everything.")
	addrs := strings.Split(regexp.MustCompile(`export TANDEMCTL_ADDR=(\S+)`).FindStringSubmatch(out.String())[1], ",")
	if len(addrs) != 3 || !strings.Contains(errOut.String(), "starting a master and 2 slaves in "+dir) {
		t.Fatalf("%v\n%s", addrs, errOut)
	}
	for _, addr := range addrs { // the fake master does not wait for its slaves
		for {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				conn.Close()
				break
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-t.Context().Done():
				t.Fatal(err)
			}
		}
	}
	if r := ctl(t, strings.Join(addrs, ","), "", "status"); r.code != exitOK || strings.Count(r.out, "broker-a/1  SLAVE") != 2 {
		t.Errorf("%+v", r)
	}
	pid, err := strconv.Atoi(pidOf.FindStringSubmatch(out.String())[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "slave-2", "storage.yaml")
	out.waitFor(t, "has ended: signal: killed\n  start it again:  "+self(t)+" -config "+config)
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	out.waitFor(t, "Stopped. Data, configs and logs are in "+dir)
	out.waitFor(t, "away:   cd "+dir+" && rm -r playground.lock master slave-1 slave-2\n")
	if r := ctl(t, addrs[0], "", "flush"); r.code != exitFailed {
		t.Errorf("the master still runs: %+v", r)
	}
}

func TestPlaygroundForAWhile(t *testing.T) {
	t.Setenv(fakeVar, "run")
	r := ctl(t, "", "", "playground", "--no-configsync", "--storage-bin", self(t), "--dir", t.TempDir(), "--slaves", "0", "--for", "1ms")
	if r.code != exitOK || !strings.Contains(r.out, "Ready.") || strings.Contains(r.out, "verify") {
		t.Errorf("%+v", r)
	}
}

func TestPlaygroundWithANodeThatDoesNotStart(t *testing.T) {
	t.Setenv(fakeVar, "broken")
	r := ctl(t, "", "", "playground", "--no-configsync", "--storage-bin", self(t), "--dir", t.TempDir())
	if r.code != exitFailed || !strings.Contains(r.err, "has ended: exit status 3\n    storage: the port is taken\n  -> see ") {
		t.Errorf("%+v", r)
	}
}

func TestPlaygroundNotReadyInTime(t *testing.T) {
	t.Setenv(fakeVar, "run")
	r := ctl(t, "", "", "playground", "--no-configsync", "--storage-bin", self(t), "--dir", t.TempDir(), "--ready-timeout", "1ns")
	if r.code != exitFailed || !strings.Contains(r.err, "--ready-timeout") || !strings.Contains(r.out, "Stopped.") {
		t.Errorf("%+v", r)
	}
}

// store writes a small store folder as RocketMQ leaves it.
func store(t *testing.T, dir string) (log []byte) {
	t.Helper()
	log = append(bytes.Repeat([]byte{0}, 3<<20), randomLog(100)...)
	log[5] = 1
	log = append(log, make([]byte, 2<<20)...)
	for name, b := range map[string][]byte{
		"commitlog/00000000000000000000": log, "consumequeue/t/0/00000000000000000000": log[:40], "checkpoint": log[:4096],
		"abort": nil, "lock": []byte("lock"), "tandem/lineage": []byte("x"), "rollback/0-1-1/0": []byte("x"),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

func TestPlaygroundFromAStore(t *testing.T) {
	t.Setenv(fakeVar, "run")
	base, dir := t.TempDir(), t.TempDir()
	log := store(t, filepath.Join(base, "broker", "store"))
	args := []string{"playground", "--no-configsync", "--storage-bin", self(t), "--dir", dir, "--slaves", "0", "--for", "1ms", "--from"}

	r := ctl(t, "", "", append(args, base)...)
	if r.code != exitUsage || !strings.Contains(r.err, "but these have: "+filepath.Join(base, "broker", "store")) {
		t.Errorf("%+v", r)
	}
	r = ctl(t, "", "", append(args, filepath.Join(base, "broker", "store"))...)
	if r.code != exitOK {
		t.Fatalf("%+v", r)
	}
	data := filepath.Join(dir, "master", "data")
	if got, err := os.ReadFile(filepath.Join(data, "commitlog/00000000000000000000")); err != nil || !bytes.Equal(got, log) {
		t.Errorf("the copy differs: %v", err)
	}
	var names []string
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"abort", "checkpoint", "commitlog", "consumequeue"}) {
		t.Errorf("copied %v", names)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "master", "storage.yaml")); err != nil || bytes.Contains(b, []byte("mappedFileSizeCommitLog")) {
		t.Errorf("the size of files that exist must not be set: %s, %v", b, err)
	}
	if r := ctl(t, "", "", append(args, filepath.Join(base, "broker", "store"))...); r.code != exitUsage || !strings.Contains(r.err, "has data already") {
		t.Errorf("%+v", r)
	}
}

func TestStorageBinaryIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := ctl(t, "", "", "playground")
	if r.code != exitFailed || !strings.Contains(r.err, "make build") {
		t.Errorf("%+v", r)
	}
	if _, err := serviceBinary("storage", ""); errors.Is(err, exec.ErrNotFound) {
		t.Errorf("a bare error: %v", err)
	}
}

func TestHeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, hurry := make(chan os.Signal, 1), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go heed(signals, cancel, hurry)
		signals <- os.Interrupt
		<-ctx.Done()
		signals <- os.Interrupt // the same Ctrl-C, seen twice
		synctest.Wait()
		time.Sleep(time.Second)
		select {
		case <-hurry:
			t.Error("one Ctrl-C was taken for two")
		default:
		}
		signals <- os.Interrupt
		<-hurry
	})
}

func TestPlaygroundInAHurry(t *testing.T) {
	t.Setenv(fakeVar, "stubborn")
	out, errOut := newSyncBuffer(), newSyncBuffer()
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{in: strings.NewReader(""), out: out, errOut: errOut, env: func(string) string { return "" }, hurry: make(chan struct{})}
	code := make(chan int, 1)
	go func() {
		code <- a.run(ctx, []string{"playground", "--no-configsync", "--storage-bin", self(t), "--dir", t.TempDir(), "--slaves", "0"})
	}()
	out.waitFor(t, "Ready.")
	cancel()
	close(a.hurry)
	if c := <-code; c != exitFailed || !strings.Contains(errOut.String(), "was killed before it had stopped") {
		t.Errorf("exit code %d\n%s", c, errOut)
	}
}

func TestPlaygroundTakesNoFolderOfOthers(t *testing.T) {
	t.Setenv(fakeVar, "run")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "passwd"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"playground", "--no-configsync", "--storage-bin", self(t), "--slaves", "0", "--for", "1ms", "--dir"}
	r := ctl(t, "", "", append(args, dir)...)
	if r.code != exitUsage || !strings.Contains(r.err, "has files and is no playground's") || strings.Contains(r.out, "rm ") {
		t.Errorf("%+v", r)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
	if r := ctl(t, "", "", append(args, filepath.Join(dir, "passwd"))...); r.code != exitUsage || !strings.Contains(r.err, "not a directory") {
		t.Errorf("%+v", r)
	}
	own := filepath.Join(dir, "new")
	if r := ctl(t, "", "", append([]string{"playground", "--async", "--acks", "2", "--slaves", "2", "--no-configsync", "--storage-bin", self(t), "--for", "1ms", "--dir"}, t.TempDir())...); !strings.Contains(r.out, "playground --slaves 2 --acks 2 --async --no-configsync --dir ") {
		t.Errorf("%+v", r)
	}
	for range 2 { // made, and taken again
		if r := ctl(t, "", "", append(args, own)...); r.code != exitOK || !strings.Contains(r.out, "cd "+own+" && rm -r playground.lock master\n") {
			t.Errorf("%+v", r)
		}
	}
}

func TestPlaygroundThatRunsIsLeftAlone(t *testing.T) {
	t.Setenv(fakeVar, "run")
	dir := t.TempDir()
	out, _, stop := startCtl(t, "", "playground", "--no-configsync", "--storage-bin", self(t), "--dir", dir, "--slaves", "0")
	defer stop()
	out.waitFor(t, "Ready.")
	config := filepath.Join(dir, "master", "storage.yaml")
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	r := ctl(t, "", "", "playground", "--no-configsync", "--storage-bin", self(t), "--dir", dir, "--slaves", "1", "--for", "1ms")
	if r.code != exitFailed || !strings.Contains(r.err, "a playground runs in "+dir+" already") {
		t.Errorf("%+v", r)
	}
	if after, err := os.ReadFile(config); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the configuration was changed: %v\n%s", err, after)
	}
	if _, err := os.Stat(filepath.Join(dir, "slave-1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder was made: %v", err)
	}
}

func TestPlaygroundIsNoCopyOfItself(t *testing.T) {
	from := t.TempDir()
	store(t, from)
	r := ctl(t, "", "", "playground", "--no-configsync", "--storage-bin", self(t), "--from", from, "--dir", filepath.Join(from, "play"))
	if r.code != exitUsage || !strings.Contains(r.err, "lies inside of the store") {
		t.Errorf("%+v", r)
	}
}
