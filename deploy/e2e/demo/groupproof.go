package main

import (
	"bytes"
	"context"
	"fmt"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
)

// prove shows that each acknowledged append stands once, where its client was told, and that all three logs are equal.
func (g *group) prove(ctx context.Context) error {
	step("Proof of the ledger")
	for _, n := range g.cluster.ledgers {
		all, err := readEntries(g.cluster.folder(n))
		if err != nil {
			return err
		}
		if int64(len(all)) != g.end+1 {
			return fmt.Errorf("%s has %d entries in its files, its last one should be %d", g.id(n), len(all), g.end)
		}
		sum := sumOf(all)
		if g.sum == nil {
			g.sum = sum
		}
		if !bytes.Equal(sum, g.sum) {
			return fmt.Errorf("the entries in the files of %s differ", g.id(n))
		}
		if err := g.checkLog(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", g.id(n), err)
		}
	}
	again := 0
	for _, e := range g.cut {
		if n, err := numberOf(e.body); err == nil && g.load.told[n] != 0 {
			again++
		}
	}
	say("%d appends acknowledged: on each node each stands once, at the index that its client was told", len(g.load.told))
	say("%d of the %d cut entries were such appends: their clients repeated them, and the new leader took each once", again, len(g.cut))
	say("files of all three logs: %d entries, %d of them %s, SHA-256 over index, term and body %x...", g.end+1, g.end+1-int64(len(g.load.told)),
		"without a body, which open a term", g.sum[:8])
	return nil
}

// atRest waits until all nodes have the same log and know all of it to be committed.
func (g *group) atRest(ctx context.Context) error {
	if err := g.find(ctx, g.term); err != nil {
		return err
	}
	lead, err := g.cluster.awaitLedger(ctx, g.leader, "committing everything", func(st *ledgerv1.StatusResponse) bool {
		return st.GetCommittedIndex() == st.GetLastIndex()
	})
	if err != nil {
		return err
	}
	g.end = lead.GetLastIndex()
	for _, n := range g.cluster.ledgers {
		_, err := g.cluster.awaitLedger(ctx, n, "having it all", func(st *ledgerv1.StatusResponse) bool {
			return st.GetCommittedIndex() == st.GetLastIndex() && st.GetLastIndex() == g.end
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkLog reads the log of one node and compares it with what the clients were told.
func (g *group) checkLog(ctx context.Context, node string) error {
	c := ledgerv1.NewLedgerServiceClient(g.cluster.conns[node])
	seen := map[int]int64{}
	for at := int64(0); at <= g.end; {
		r, err := c.GetRange(ctx, &ledgerv1.GetRangeRequest{Index: at, Consistency: ledgerv1.Consistency_CONSISTENCY_LOCAL})
		if err != nil {
			return err
		}
		if r.GetNextIndex() <= at {
			return fmt.Errorf("the log does not go on at %d", at)
		}
		for _, e := range r.GetEntries() {
			if e.GetNoOp() {
				continue
			}
			n, err := numberOf(e.GetBody())
			if err != nil {
				return err
			}
			if !bytes.Equal(e.GetBody(), appendBody(n)) {
				return fmt.Errorf("entry %d is not what append %d was", e.GetIndex(), n)
			}
			if first, ok := seen[n]; ok {
				return fmt.Errorf("append %d stands twice, at %d and %d", n, first, e.GetIndex())
			}
			seen[n] = e.GetIndex()
		}
		at = r.GetNextIndex()
	}
	if len(seen) != len(g.load.told) {
		return fmt.Errorf("%d appends stand, %d were acknowledged", len(seen), len(g.load.told))
	}
	for n, index := range g.load.told {
		if at, ok := seen[n]; !ok || at != index {
			return fmt.Errorf("append %d was acknowledged at %d and stands at %d (%t)", n, index, at, ok)
		}
	}
	return nil
}
