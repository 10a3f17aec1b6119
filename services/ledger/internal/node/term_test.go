package node_test

import (
	"testing"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// TestProposeInATerm: only in the leadership that was meant, not in a later one of the same node.
func TestProposeInATerm(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.put("x")
		first, to := c.leader(), c.follower()
		term := first.node.Soft().Term
		if _, err := first.node.ProposeIn(t.Context(), term, batchOf("y")); err != nil {
			t.Fatal(err)
		}
		if err := first.node.Transfer(t.Context(), to.id); err != nil {
			t.Fatal(err)
		}
		c.put("z")
		if err := to.node.Transfer(t.Context(), first.id); err != nil {
			t.Fatal(err)
		}
		last := c.put("again")
		if c.leader() != first {
			t.Fatalf("%s leads", c.leader().id)
		}
		for _, old := range []raft.Term{term, term + 1, first.node.Soft().Term + 1} {
			_, err := first.node.ProposeIn(t.Context(), old, batchOf("no"))
			wantErr(t, err, node.ErrNotLeader)
		}
		if _, err := first.node.ProposeIn(t.Context(), first.node.Soft().Term, batchOf("yes")); err != nil {
			t.Error(err)
		}
		if got := c.put("end"); got != last+2 {
			t.Errorf("%d entries behind the refused ones, want 2", got-last)
		}
	})
}
