package testkit

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// LeakOptions says what Leaks looks at besides goroutines and open files.
type LeakOptions struct {
	// HeapGrowth is how many bytes of live heap may be left at the end beyond the start; 0: the heap is not looked at.
	HeapGrowth uint64
	// IgnoreGoroutines are parts of a stack whose goroutines may stay.
	IgnoreGoroutines []string
}

// goroutines of the runtime and of package testing that come and go by themselves.
var ownGoroutines = []string{
	"testing.(*T).Run", "testing.(*M).", "testing.runFuzzing", "testing.tRunner.func", "os/signal.signal_recv",
	"os/signal.loop", "runtime.ensureSigM", "runtime/trace.Start", "runtime.ReadTrace",
}

// Leaks compares what there is now with what there is at the end of t, after everything registered later was cleaned up,
// and fails t if something stays for longer than Patience. Call it first; not in tests that run in parallel.
func Leaks(t testing.TB, o LeakOptions) {
	t.Helper()
	goroutines, files, heap := goroutines(), openFiles(), uint64(0)
	if o.HeapGrowth > 0 {
		heap = liveHeap()
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // what failed first explains the rest
		}
		left := await(func() []string {
			return slices.Concat(newGoroutines(goroutines, o.IgnoreGoroutines), newFiles(files), heapGrowth(heap, o.HeapGrowth))
		})
		for _, l := range left {
			t.Errorf("left behind: %s", l)
		}
	})
}

// await asks find until it finds nothing or patience ends.
func await(find func() []string) []string {
	deadline := time.Now().Add(Patience)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		left := find()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		<-pause.C
	}
}

var goroutineHead = regexp.MustCompile(`^goroutine (\d+) `)

// goroutines returns the stacks by goroutine number.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	stacks := map[string]string{}
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if m := goroutineHead.FindStringSubmatch(stack); m != nil {
			stacks[m[1]] = stack
		}
	}
	return stacks
}

func newGoroutines(before map[string]string, ignore []string) []string {
	ignore = slices.Concat(ownGoroutines, ignore)
	var left []string
	now := goroutines()
	for _, id := range slices.Sorted(maps.Keys(now)) {
		stack := now[id]
		if _, was := before[id]; was || strings.Contains(stack, "testkit.goroutines(") {
			continue
		}
		if !slices.ContainsFunc(ignore, func(part string) bool { return strings.Contains(stack, part) }) {
			left = append(left, stack)
		}
	}
	return left
}

// openFiles counts the descriptors by what they lead to. Sockets and pipes have a number of their own there, so a new one
// is a new name.
func openFiles() map[string]int {
	const dir = "/proc/self/fd"
	files := map[string]int{}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return files
	}
	for _, e := range entries {
		target, err := os.Readlink(dir + "/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/proc/") {
			continue // the one that read the directory, and the poller's
		}
		files[target]++
	}
	return files
}

func newFiles(before map[string]int) []string {
	var left []string
	now := openFiles()
	for _, target := range slices.Sorted(maps.Keys(now)) {
		if n := now[target] - before[target]; n > 0 {
			left = append(left, fmt.Sprintf("%d open of %s", n, target))
		}
	}
	return left
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // the second one frees what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func heapGrowth(before, allowed uint64) []string {
	if allowed == 0 {
		return nil
	}
	if now := liveHeap(); now > before+allowed {
		return []string{fmt.Sprintf("%d bytes of heap, %d at the start", now, before)}
	}
	return nil
}
