package rpc

import (
	"errors"
	"slices"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
)

// field is one that an update mask can name: whether the request R has it, and what it does to the config C.
type field[C, R any] struct {
	name string
	set  func(r R) bool
	to   func(c *C, r R) error
}

// apply sets what the paths name; without paths, what the request has.
func apply[C, R any](fields []field[C, R], c *C, r R, paths []string) error {
	for _, p := range paths {
		if p != "*" && !slices.ContainsFunc(fields, func(f field[C, R]) bool { return f.name == p }) {
			var names []string
			for _, f := range fields {
				names = append(names, f.name)
			}
			return errdefs.Invalid("update_mask", "%q is no field that can be set", p).WithRemedy("use %s", strings.Join(names, ", "))
		}
	}
	for _, f := range fields {
		named := slices.Contains(paths, f.name) || slices.Contains(paths, "*")
		if named || len(paths) == 0 && f.set(r) {
			if err := f.to(c, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxUpdates bounds the tries of an update that others overtake.
const maxUpdates = 16

// update reads an entry, changes it and puts it back where it is still the one that was read; otherwise it begins anew. asked
// is what the caller wants to hold.
func update(asked registry.Condition, read func() (table.Entry, bool, error), put func(table.Entry, registry.Condition) (table.Entry, error)) (table.Entry, error) {
	for try := 1; ; try++ {
		old, exists, err := read()
		if err != nil {
			return table.Entry{}, err
		}
		c := asked
		if exists {
			etag := old.Etag()
			if asked.Etag != nil && *asked.Etag != etag {
				return table.Entry{}, registry.ErrPrecondition.With("have", etag).With("want", *asked.Etag)
			}
			c.Update, c.Etag = true, &etag
		} else {
			if asked.Etag != nil {
				return table.Entry{}, registry.ErrNotFound
			}
			c.Create = true
		}
		e, err := put(old, c)
		overtaken := errors.Is(err, registry.ErrPrecondition) || errors.Is(err, registry.ErrExists) || errors.Is(err, registry.ErrNotFound)
		if !overtaken || asked.Etag != nil || asked.Version != nil || try == maxUpdates {
			return e, err
		}
	}
}
