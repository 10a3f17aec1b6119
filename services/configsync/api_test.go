package main

import (
	"testing"

	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// TestEveryMethodAnswers calls every method that reflection shows on a master and on a slave.
func TestEveryMethodAnswers(t *testing.T) {
	t.Parallel()
	g := group(t, 1)
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().create("TopicA")
	same(t, g...)
	for _, n := range g {
		servicetest.EveryMethod(t, n.conn, n.cfg.BrokerRole,
			"tandem.configsync.v1.ConfigSyncService", "tandem.configsync.v1.TopicService", "tandem.configsync.v1.SubscriptionGroupService",
			"tandem.configsync.v1.OffsetService", "tandem.configsync.v1.ConfigAdminService", "grpc.health.v1.Health")
	}
	same(t, g...)
}
