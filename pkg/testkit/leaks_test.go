package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLeaksSeesWhatStays(t *testing.T) {
	gor, files, heap := goroutines(), openFiles(), liveHeap()
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		<-stop
		close(stopped)
	}()
	f, err := os.Create(filepath.Join(t.TempDir(), "left"))
	if err != nil {
		t.Fatal(err)
	}
	ballast := make([]byte, 4<<20)
	if left := newGoroutines(gor, nil); len(left) != 1 || !strings.Contains(left[0], "TestLeaksSeesWhatStays") {
		t.Errorf("goroutines: %q", left)
	}
	if left := newGoroutines(gor, []string{"TestLeaksSeesWhatStays"}); len(left) != 0 {
		t.Errorf("ignored goroutines: %q", left)
	}
	if left := newFiles(files); len(left) != 1 || !strings.Contains(left[0], "left") {
		t.Errorf("files: %q", left)
	}
	if left := heapGrowth(heap, 1<<20); len(left) != 1 {
		t.Errorf("heap: %q", left)
	}
	if left := heapGrowth(heap, 64<<20); len(left) != 0 {
		t.Errorf("allowed heap: %q", left)
	}
	ballast[0] = 1
	close(stop)
	<-stopped
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if left := await(func() []string { return append(newGoroutines(gor, nil), newFiles(files)...) }); len(left) != 0 {
		t.Errorf("after all ended: %q", left)
	}
}

func TestLeaksWaits(t *testing.T) {
	Leaks(t, LeakOptions{HeapGrowth: 16 << 20})
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) }) // ends a moment before or after the check begins
	go func() { <-stop }()
}
