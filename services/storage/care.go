package main

import (
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/repair"
)

// newCare makes what looks for damage and repairs it.
func (a *app) newCare() (*repair.Keeper, error) {
	scrubs, err := check.NewScrubber(a.log, a.queues, func() int64 { return a.dispatch.Dispatched().Load() }, a.cfg.levels,
		a.env.MeterProvider.Meter(scope+"check"))
	if err != nil {
		return nil, err
	}
	return repair.New(repair.Options{
		Self:   epoch.PromiseRequest{Cluster: a.cfg.BrokerClusterName, BrokerName: a.cfg.BrokerName, NodeID: a.cfg.BrokerID},
		Epochs: func() epoch.List { return a.role.State().Lineage.Epochs },
		Keep:   int64(a.cfg.HA.RollbackKeep),
		Scrubs: scrubs, Queues: mender{a.dispatch, a.queues}, Sources: a.peers, Book: a.damage,
		Log: a.env.Logger, Meter: a.env.MeterProvider.Meter(scope + "repair"),
	}, a.log)
}

// mender writes units anew, durably.
type mender struct {
	dispatch *dispatch.Dispatcher
	queues   *consumequeue.Set
}

func (m mender) Mend(from, to int64) (int, error) {
	n, err := m.dispatch.Mend(m.queues, from, to)
	if n > 0 && err == nil {
		err = m.queues.Flush()
	}
	return n, err
}
