package main

import (
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/storage/internal/check/folder"
)

// checkFileSize refuses a file of the log that was cut short: a log of smaller files would begin on it.
func (a *app) checkFileSize() error {
	name, size, want, err := folder.ShortFile(a.fs, a.cfg.StorePathRootDir)
	if err != nil || name == "" {
		return err //nolint:wrapcheck // says what it did
	}
	e := mappedfile.ErrSize.WithMsg("a file of the log was cut short").With("file", name).With("size", size)
	if want > 0 {
		e = e.With("want", want)
	}
	return e.WithRemedy("bring the file back; or start this node in an empty folder, as a slave of a node that has the log")
}
