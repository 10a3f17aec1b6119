package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// node is a storage folder that is in use.
type node struct {
	dir    string
	log    *commitlog.Log
	queues *consumequeue.Set
	disp   *dispatch.Dispatcher
	cancel context.CancelFunc
	ended  sync.WaitGroup
	failed func() error
}

// open opens a new folder. With touched the pages of its first file are in the page cache before anything is appended.
func (w *worker) open(ctx context.Context, args *words, _ *answer) error {
	if w.node != nil {
		return errors.New("a folder is open already")
	}
	dir, size := args.text("dir"), int64(args.int("file"))
	if args.text("touched") != "" {
		if err := touch(filepath.Join(dir, "commitlog"), size); err != nil {
			return err
		}
	}
	n, err := openNode(dir, size)
	if err != nil {
		return err
	}
	n.run(ctx)
	w.node = n
	return nil
}

// touch writes zeros into the file that a log begins with, and to the disk: a slave that flushed them too would be measured
// with twice the bytes.
func touch(dir string, size int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%020d", 0)))
	if err != nil {
		return err
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size && err == nil; at += int64(len(zeros)) {
		_, err = f.Write(zeros[:min(int64(len(zeros)), size-at)])
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func openNode(dir string, size int64) (*node, error) {
	fsys := vfs.OS()
	log, _, err := commitlog.Open(fsys, dir, commitlog.Options{FileSize: size, BootID: "benchmark"})
	if err != nil {
		return nil, err
	}
	queues, err := consumequeue.Open(fsys, dir, consumequeue.Options{Checkpoint: log.Checkpoint()})
	if err != nil {
		return nil, errors.Join(err, log.Close(false))
	}
	levels, err := message.ParseDelayLevels("1s 5s 10s")
	if err != nil {
		return nil, err
	}
	disp, err := dispatch.New(dispatch.Options{DelayLevels: levels}, log, queues)
	if err != nil {
		return nil, err
	}
	return &node{dir: dir, log: log, queues: queues, disp: disp}, nil
}

// run starts what a storage has running.
func (n *node) run(ctx context.Context) {
	ctx, n.cancel = context.WithCancel(ctx)
	var mu sync.Mutex
	var first error
	for _, f := range []func(context.Context) error{n.log.Run, n.queues.Run, n.disp.Run} {
		n.ended.Go(func() {
			if err := f(ctx); err != nil {
				mu.Lock()
				first = errors.Join(first, err)
				mu.Unlock()
			}
		})
	}
	n.failed = func() error {
		mu.Lock()
		defer mu.Unlock()
		return first
	}
}

// close stops the node and removes its folder.
func (n *node) close() error {
	n.cancel()
	n.ended.Wait()
	return errors.Join(n.failed(), n.queues.Close(), n.log.Close(false), os.RemoveAll(n.dir))
}

// reset empties the log of a slave, so that it goes on at an offset.
func (w *worker) reset(_ context.Context, args *words, _ *answer) error {
	start := int64(args.int("start"))
	if err := w.node.log.Reset(start); err != nil {
		return err
	}
	return w.node.disp.Reset(start)
}
