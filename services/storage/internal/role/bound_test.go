package role_test

import (
	"errors"
	"math"
	"testing"

	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role"
)

func strange(e int64) epoch.PromiseRequest {
	return epoch.PromiseRequest{Cluster: "c", BrokerName: "b", NodeID: 9, Reign: epoch.Promise{Epoch: e, ID: 77}}
}

// TestAnEnormousEpochIsNotPromised: a caller with a number that no promotion can have led to changes nothing, and takes no number from the group.
func TestAnEnormousEpochIsNotPromised(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 3)
		for _, e := range []int64{math.MaxInt64, 1 << 62, 2 + epoch.Farthest} {
			for _, n := range c.nodes {
				if h, err := n.m.OnPromise(t.Context(), strange(e)); !errors.Is(err, role.ErrTooFar) || h.Promised {
					t.Errorf("node %d, epoch %d: %+v %v", n.o.NodeID, e, h, err)
				}
			}
		}
		if !c.nodes[0].isOpen() {
			t.Fatal("the master is not open any more")
		}
		c.nodes[0].put("more|")
		c.same("base|more|")
		c.nodes[0].cleanStop()
		c.nodes[0].start()
		c.until("opens again", c.nodes[0].isOpen)
	})
}

// TestAPromotionAfterTheFarthestEpoch: one node was taken as far as it lets itself be taken; it can be promoted all the same, as the others ask
// around before they doubt it.
func TestAPromotionAfterTheFarthestEpoch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := opened(t, 5)
		at := c.nodes[1].m.State().Lineage.Known().Epoch
		for i := range int64(3) {
			if h, err := c.nodes[1].m.OnPromise(t.Context(), strange(at+(i+1)*epoch.Farthest)); err != nil || !h.Promised {
				t.Fatalf("%+v %v", h, err)
			}
		}
		if p, err := c.nodes[1].m.Promote(t.Context(), false); err != nil || p.Epoch <= at+3*epoch.Farthest {
			t.Fatalf("%+v %v", p, err)
		}
		c.nodes[1].put("more|")
		c.until("all follow", func() bool {
			for _, n := range c.nodes {
				if n.log.text() != "base|more|" {
					return false
				}
			}
			return true
		})
	})
}
