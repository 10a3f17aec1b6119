package role

import (
	"context"

	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

// owner is the Manager as its slave's side sees it: every call is an op.
type owner struct{ m *Manager }

// Stand implements slave.Owner.
func (o owner) Stand(ctx context.Context) (st slave.Stand, err error) {
	err = o.m.do(ctx, func() error {
		st = slave.Stand{Lineage: o.m.lin, Downstream: o.m.downstream(), Path: o.m.lastPath}
		return nil
	})
	return st, err
}

// Save implements slave.Owner.
func (o owner) Save(ctx context.Context, change func(epoch.Lineage) epoch.Lineage) error {
	return o.m.do(ctx, func() error { return o.m.save(change(o.m.lin)) })
}

// Adopt implements slave.Owner.
func (o owner) Adopt(ctx context.Context, next epoch.Lineage, path []int64) error {
	return o.m.do(ctx, func() error {
		o.m.clean = false
		o.m.path, o.m.lastPath = append([]int64{o.m.o.NodeID}, path...), path
		return o.m.save(next)
	})
}

// Unlink implements slave.Owner.
func (o owner) Unlink(ctx context.Context) error {
	return o.m.do(ctx, func() error { o.m.path = nil; return nil })
}

// DropLinks implements slave.Owner.
func (o owner) DropLinks(ctx context.Context, reason error) error {
	return o.m.do(ctx, func() error { o.m.dropFollowers(reason); return nil })
}
