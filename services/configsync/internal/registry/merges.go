package registry

import (
	"context"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// merge applies what package table makes of the own table and another node's.
func (r *Registry) merge(ctx context.Context, kind entry.Kind, heals func(own *table.Table) bool, f func(own *table.Table) (*table.Table, table.Report, error)) (table.Report, error) {
	if !kind.Valid() {
		return table.Report{}, table.ErrKind.With("kind", kind)
	}
	var report table.Report
	err := r.stores[kind].do(ctx, change{heals: heals, apply: func(own *table.Table) (*table.Table, error) {
		next, rep, err := f(own)
		report = rep
		return next, err
	}})
	if err != nil {
		return table.Report{}, err
	}
	return report, nil
}

// Follow takes a Tandem master's delta, see table.Follow; it is saved on return. A full one makes a table whole that was
// not.
func (r *Registry) Follow(ctx context.Context, d *table.Delta, o table.FollowOptions) (table.Report, error) {
	return r.merge(ctx, d.Kind, func(*table.Table) bool { return d.Full }, func(own *table.Table) (*table.Table, table.Report, error) {
		return table.Follow(own, d, o)
	})
}

// Join takes the table of a peer before this node leads, see table.Join. It makes a table whole that was not, unless the
// peer has nothing, or less than what is left here.
func (r *Registry) Join(ctx context.Context, peer *table.Table) (table.Report, error) {
	heals := func(own *table.Table) bool {
		return (peer.Len() > 0 || !peer.Version().IsZero()) && peer.Version().Compare(own.Version()) >= 0
	}
	return r.merge(ctx, peer.Kind(), heals, func(own *table.Table) (*table.Table, table.Report, error) {
		return table.Join(own, peer, r.epoch.Load(), r.nowMS())
	})
}

// FollowJava takes a Java master's table, see table.FollowJava. With TakeLower it is what an operator's import does: the
// table becomes that one, and offsets of it that are lower are resets.
func (r *Registry) FollowJava(ctx context.Context, java *table.Table, o table.JavaOptions) (table.Report, error) {
	return r.merge(ctx, java.Kind(), func(*table.Table) bool { return java.Len() > 0 }, func(own *table.Table) (*table.Table, table.Report, error) {
		return table.FollowJava(own, java, o, r.nowMS())
	})
}
