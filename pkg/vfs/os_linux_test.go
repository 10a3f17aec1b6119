package vfs_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

const holderEnv = "TANDEM_TEST_POSIX_LOCK"

func TestMain(m *testing.M) {
	if name := os.Getenv(holderEnv); name != "" {
		holdPosixLock(name)
		return
	}
	m.Run()
}

// holdPosixLock locks as Java's FileChannel.tryLock(0, 1, false) does, says what came of it and holds on until stdin ends.
func holdPosixLock(name string) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return // no answer fails the test
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
	switch {
	case err == nil:
		_, _ = os.Stdout.WriteString("locked\n")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		_, _ = os.Stdout.WriteString("refused\n")
	default:
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// posixLock starts another process that tries; end lets it go and waits for it.
func posixLock(t *testing.T, name string) (answer string, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+name, "GORACE=atexit_sleep_ms=0")
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	answer, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	return answer, func() {
		must(t, in.Close())
		must(t, cmd.Wait())
	}
}

func TestLockAndAPosixLockExcludeEachOther(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	answer, end := posixLock(t, name)
	if answer != "locked\n" {
		t.Fatalf("the broker: %q", answer)
	}
	if _, err := vfs.OS().Lock(name); !errors.Is(err, vfs.ErrLocked) || !strings.Contains(errdefs.As(err).Remedy, "`fuser "+name+"`") {
		t.Errorf("while a broker runs: %v", err)
	}
	end()
	l, err := vfs.OS().Lock(name)
	must(t, err)
	if answer, end = posixLock(t, name); answer != "refused\n" {
		t.Errorf("a broker while Tandem runs: %q", answer)
	}
	end()
	must(t, l.Close())
}

func TestFullDevice(t *testing.T) {
	f, err := vfs.OS().OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("this machine has no /dev/full, the device that is always full; memfs plays full disks everywhere: %v", err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, vfs.ErrNoSpace) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write: %v", err)
	}
	if _, err := f.WritevAt([][]byte{{1}, {2}}, 0); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("writev: %v", err)
	}
}

// small gives both kinds a disk of size bytes; a tmpfs of that size where the test may mount one.
func small(t *testing.T, size int64, test func(t *testing.T, d disk)) {
	t.Run("os", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.FormatInt(size, 10)); err != nil {
			t.Skipf("a small disk needs the right to mount a tmpfs; the same test runs on memfs: %v", err)
		}
		t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
		test(t, disk{vfs.OS(), dir})
	})
	t.Run("memfs", func(t *testing.T) {
		m := memfs.New()
		m.SetQuota(size)
		test(t, disk{m, "/"})
	})
}

func TestT12_AFullDiskIsAnError(t *testing.T) {
	small(t, 64<<10, func(t *testing.T, d disk) {
		f := d.open(t, "a", create)
		must(t, f.Allocate(32<<10))
		_, err := f.WriteAt([]byte("kept"), 0)
		must(t, err)
		if err := f.Allocate(128 << 10); !errors.Is(err, vfs.ErrNoSpace) {
			t.Fatalf("allocate more than there is: %v", err)
		}
		if size, _ := f.Size(); size != 32<<10 {
			t.Errorf("a failed reservation left the length at %d", size)
		}
		free, err := d.FreeSpace(d.dir)
		must(t, err)
		if free != 32<<10 {
			t.Errorf("a failed reservation kept blocks: %d free", free)
		}
		big := bytes.Repeat([]byte{1}, 20<<10)
		g := d.open(t, "b", create)
		n, err := g.WritevAt([][]byte{big, big}, 0)
		if !errors.Is(err, vfs.ErrNoSpace) || n >= 40<<10 || n%4096 != 0 {
			t.Errorf("writev beyond the end of the disk: %d %v", n, err)
		}
		if size, _ := g.Size(); size != int64(n) {
			t.Errorf("%d bytes reported, the file has %d", n, size)
		}
		if _, err := g.WriteAt(big, int64(n)); !errors.Is(err, vfs.ErrNoSpace) {
			t.Errorf("write to a full disk: %v", err)
		}
		m, err := f.Map(32<<10, true)
		must(t, err)
		for i := range m.Bytes() {
			m.Bytes()[i] = 9 // a SIGBUS here would end the test
		}
		must(t, f.Sync())
		must(t, m.Close())
		must(t, g.Close())
		must(t, d.Remove(d.path("b")))
		must(t, f.Allocate(60<<10))
	})
}

func TestDescriptor(t *testing.T) {
	f := disk{vfs.OS(), t.TempDir()}.open(t, "a", create)
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	fd, ok := f.Fd()
	b := make([]byte, 3)
	if n, err := unix.Pread(int(fd), b, 0); !ok || n != 3 || err != nil || string(b) != "abc" {
		t.Errorf("%d %v %q", n, err, b)
	}
}

func TestDirectoryEntriesThatLeadNowhere(t *testing.T) {
	d := disk{vfs.OS(), t.TempDir()}
	must(t, os.Symlink("nowhere", d.path("link")))
	must(t, os.Symlink(d.dir, d.path("self")))
	infos, err := d.ReadDir(d.dir)
	must(t, err)
	if len(infos) != 1 || infos[0].Name != "self" || !infos[0].Dir {
		t.Errorf("got %+v", infos)
	}
}

func TestWritevAllocatesNothing(t *testing.T) {
	f := disk{vfs.OS(), t.TempDir()}.open(t, "a", create)
	bufs := make([][]byte, 200)
	for i := range bufs {
		bufs[i] = make([]byte, 100)
	}
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := f.WritevAt(bufs, 0); err != nil {
			t.Error(err)
		}
	})
	if allocs >= 1 {
		t.Errorf("%v allocations for 200 pieces", allocs)
	}
}
