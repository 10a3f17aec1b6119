package main

import (
	"testing"

	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestEveryMethodAnswers calls every method that reflection shows on each member.
func TestEveryMethodAnswers(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	startAll(g)
	last := newClient(t).put(g, "x").GetIndex()
	for _, s := range g {
		servicetest.EveryMethod(t, s.conn, s.cfg.SelfID, "tandem.ledger.v1.LedgerService", "tandem.ledger.v1.LedgerAdminService",
			"tandem.ledger.v1.PushService", "tandem.ledger.v1.ElectionService", "grpc.health.v1.Health")
	}
	for _, s := range g {
		if got := s.bodies(last); len(got) != 1 {
			t.Errorf("%v", got)
		}
	}
}
