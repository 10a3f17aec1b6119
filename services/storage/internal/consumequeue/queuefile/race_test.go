package queuefile

import (
	"bytes"
	"io/fs"
	"testing"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// pausing is a file system on which one opening of an existing file is held back before its result is used.
type pausing struct {
	vfs.FS
	opened, goOn chan struct{} // nil: not held back
}

func (p *pausing) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := p.FS.OpenFile(name, flag, perm)
	if opened := p.opened; opened != nil {
		p.opened = nil
		close(opened)
		<-p.goOn
	}
	return f, err
}

// TestAReaderDoesNotBringBackARemovedFile: a file that a reader opens just before it is removed is not what later writes to the
// file of its name go to.
func TestAReaderDoesNotBringBackARemovedFile(t *testing.T) {
	p := &pausing{FS: memfs.New()}
	if err := p.MkdirAll("q", 0o755); err != nil {
		t.Fatal(err)
	}
	pool := NewPool(p, 1)
	row := NewRow(pool, "q", 100)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(row.WriteAt([]byte("old"), 0))
	must(pool.forget(fileKey{&row, 0})) // closed, as when other files have been used since
	p.opened, p.goOn = make(chan struct{}), make(chan struct{})
	opened := p.opened
	read := make(chan error, 1)
	go func() { read <- row.ReadAt(make([]byte, 3), 0) }()
	<-opened
	must(row.remove(Run{0, 100}))
	row.Files = Run{}
	close(p.goOn)
	<-read // it saw the old file, or none
	must(row.WriteAt([]byte("newer"), 0))
	must(pool.Close())
	f, err := p.FS.OpenFile("q/00000000000000000000", 0, 0)
	must(err)
	got := make([]byte, 5)
	_, err = f.ReadAt(got, 0)
	must(err)
	if !bytes.Equal(got, []byte("newer")) {
		t.Errorf("the file holds %q", got)
	}
}
