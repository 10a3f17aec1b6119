package registry

import (
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
)

// Errors of the registry.
var (
	// ErrBroken: neither copy of a table could be read, or its journal has a hole.
	ErrBroken = disk.ErrBroken
	// ErrShape: a file that a newer version may have written.
	ErrShape = disk.ErrShape
	// ErrFaulted: a sync failed.
	ErrFaulted = errdefs.New(errdefs.Unavailable, "REGISTRY_FAULTED", "the disk failed, nothing is saved any more").
			WithRemedy("restart the service when the disk is well")
	// ErrPrecondition: what the caller expects is not what is there.
	ErrPrecondition = errdefs.New(errdefs.FailedPrecondition, "PRECONDITION_FAILED", "the entry or the table was changed").
			WithRemedy("read it again")
	// ErrNotFound and ErrExists are about topics and groups.
	ErrNotFound = errdefs.New(errdefs.NotFound, "ENTRY_NOT_FOUND", "there is no such entry")
	ErrExists   = errdefs.New(errdefs.AlreadyExists, "ENTRY_EXISTS", "the entry is there already")
	// ErrBusy: too many callers wait for the disk.
	ErrBusy = errdefs.New(errdefs.ResourceExhausted, "REGISTRY_BUSY", "too many changes wait for the disk")
	// ErrClosed: the registry was closed.
	ErrClosed = errdefs.New(errdefs.Unavailable, "REGISTRY_CLOSED", "the registry is closed")
)
