package registry

import (
	"context"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// ImportOptions say what becomes of what is there.
type ImportOptions struct {
	// Replace makes the table of topics or groups the imported one, and lower offsets resets. Else entries are added or replace
	// their like, and offsets only grow.
	Replace bool
	DryRun  bool // change nothing
}

// ImportResult counts entries: topics, groups, topic@group pairs, delay levels.
type ImportResult struct {
	Added, Updated, Removed, Same int
	Kept                          int // offsets that are lower in the imported table and were kept
}

// Import takes a table that an operator brings, such as RocketMQ's file. With Replace it makes a table whole that was not.
func (r *Registry) Import(ctx context.Context, in *table.Table, o ImportOptions) (ImportResult, error) {
	var report table.Report
	apply := func(own *table.Table) (next *table.Table, _ table.Report, err error) {
		if o.Replace || in.Kind().Offsets() {
			// Without a version: an import is not a step of a Java master's history.
			b := table.NewBuilder(in.Kind())
			for e := range in.Ascend("") {
				if err := b.Add(e); err != nil {
					return nil, report, err
				}
			}
			next, report, err = table.FollowJava(own, b.Table(entry.Version{}, table.FormFull, in.Unknown()),
				table.JavaOptions{TakeLower: o.Replace}, r.nowMS())
			return next, report, err
		}
		next, report, err = r.addAll(own, in)
		return next, report, err
	}
	var err error
	switch {
	case o.DryRun:
		_, _, err = apply(r.Snapshot(in.Kind()))
	case in.Kind() == entry.ConsumerOffsets:
		if err := r.saveCommits(ctx); err != nil {
			return ImportResult{}, err
		}
		fallthrough
	default:
		_, err = r.merge(ctx, in.Kind(), func(*table.Table) bool { return o.Replace && in.Len() > 0 }, apply)
	}
	if err != nil {
		return ImportResult{}, err
	}
	out := ImportResult{Added: report.Added, Updated: report.Updated, Removed: report.Removed, Same: in.Len() - report.Added - report.Updated}
	if !o.Replace {
		out.Kept = report.LowerCount
	}
	return out, nil
}

// addAll puts each entry of a table of topics or groups in.
func (r *Registry) addAll(own, in *table.Table) (*table.Table, table.Report, error) {
	var report table.Report
	e := own.Edit(r.epoch.Load(), r.nowMS())
	for x := range in.Ascend("") {
		old, had := own.Get(x.Key)
		switch {
		case !had:
			report.Added++
		case !old.Value.Equal(x.Value):
			report.Updated++
		}
		if err := e.Put(x.Value); err != nil {
			return nil, report, err
		}
	}
	next, _ := e.Done()
	return next, report, nil
}
