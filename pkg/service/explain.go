package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrListen says that an address cannot be had; field and address name it.
var ErrListen = errdefs.New(errdefs.Unavailable, "LISTEN", "cannot listen")

// Listen listens on the TCP address that a configuration key names. The error says why not and what to do.
func Listen(ctx context.Context, key, addr string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, ErrListen.WithField(key).With("address", addr).Wrap(err).WithRemedy("%s", systemRemedy(err))
	}
	return ln, nil
}

// Explain returns err on one line, with a remedy for the usual failures of the system where it names none.
func Explain(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if e := errdefs.As(err); e != nil && e.Remedy != "" {
		return text
	}
	if r := systemRemedy(err); r != "" {
		text += "; " + r
	}
	return text
}

func systemRemedy(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	var addr *net.AddrError
	network := errors.As(err, &op)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another process has this port: stop it, or choose another"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address: use one of its own, or 0.0.0.0 for all"
	case network && errors.Is(err, os.ErrPermission):
		return "ports below 1024 need privileges: choose a higher one"
	case errors.As(err, &dns):
		return "check the host's name"
	case errors.As(err, &addr):
		return "write host:port, for example 127.0.0.1:10911"
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("let user id %d read and write it, or choose another place", os.Getuid())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space on this disk, or choose another place"
	case errors.Is(err, syscall.EROFS):
		return "the file system is read-only: choose another place"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "raise the limit of open files (ulimit -n)"
	case errors.Is(err, syscall.ENOTDIR):
		return "a part of the path is a file: choose another place"
	case errors.Is(err, fs.ErrNotExist):
		return "check the path"
	}
	return ""
}
