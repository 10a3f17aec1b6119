package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Run saves what was gathered every CommitInterval and writes the JSON files every SaveInterval, until ctx ends: then it
// saves and writes everything once more. It ends with ErrFaulted when a sync fails.
func (r *Registry) Run(ctx context.Context) error {
	commits := time.NewTicker(min(r.o.CommitInterval, r.o.SaveInterval))
	defer commits.Stop()
	saves := time.NewTimer(r.nextSave())
	defer saves.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return r.last(context.WithoutCancel(ctx))
		case <-r.faulted:
			return r.usable()
		case <-commits.C:
			err = r.saveCommits(ctx)
		case <-saves.C:
			err = r.saveFiles(ctx)
			r.dropCaches()
			saves.Reset(r.nextSave())
		case <-r.kick:
			err = r.saveFiles(ctx)
		}
		// What failed is tried again at the next tick, and stands in State meanwhile.
		if err != nil && ctx.Err() == nil {
			r.o.Logger.Warn("tables could not be saved", "error", err)
		}
	}
}

// nextSave is at most SaveInterval. Nodes that got the same change at the same time should not write large files together.
func (r *Registry) nextSave() time.Duration {
	d := r.o.SaveInterval
	return d - rand.N(d/4+1) //nolint:gosec // spread, not secret
}

// last saves everything at the end.
func (r *Registry) last(ctx context.Context) error {
	if err := r.usable(); err != nil {
		return err
	}
	return errors.Join(r.saveCommits(ctx), r.saveFiles(ctx))
}

// saveFiles writes the JSON files of the kinds that have changed.
func (r *Registry) saveFiles(ctx context.Context) error {
	var errs []error
	for _, kind := range entry.Kinds() {
		if err := r.stores[kind].flush(ctx); err != nil {
			r.metrics.saveFailed(kind)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (r *Registry) dropCaches() {
	for _, kind := range entry.Kinds() {
		r.stores[kind].full.DropStale(r.Snapshot(kind))
	}
}
