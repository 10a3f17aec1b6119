package main

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/config"
)

func (a *app) configStatusCommand() *cobra.Command {
	return statusCommand(&cobra.Command{
		Short: "Show role and tables of each node of --addr, and what keeps a table from being in sync",
		Example: "  tandemctl config status --addr 127.0.0.1:10921,127.0.0.1:20921\n" +
			"  tandemctl config status -w",
	}, func(ctx context.Context, every time.Duration) error {
		return a.withConfig(func(c *config.Client) error { return a.configNodes(c).run(ctx, every) })
	})
}

// configNode is what is known of one node.
type configNode = view[*config.NodeStatus]

// configNodes are the nodes of --addr.
func (a *app) configNodes(c *config.Client) nodes[*config.NodeStatus] {
	return nodes[*config.NodeStatus]{a, c.Addresses(), func(ctx context.Context, addr string) (*config.NodeStatus, error) {
		admin, err := c.Admin(addr)
		if err != nil {
			return nil, err
		}
		return admin.Status(ctx)
	}, page.config}
}

func (p page) config(n configNode) {
	if !n.answered(p) {
		return
	}
	s := n.status
	role := "slave"
	switch {
	case s.GetOpen():
		role = fmt.Sprintf("master, open, epoch %d", s.GetEpoch())
	case s.GetMaster():
		role = "master, changes refused"
	case s.GetMasterAddress() != "":
		role += fmt.Sprintf(" of %s, epoch %d", s.GetMasterAddress(), s.GetEpoch())
	}
	sayf(p.w, "%s  %s/%d  %s  (cluster %s, %s)\n", n.addr, s.GetBrokerName(), s.GetNodeId(), role, s.GetCluster(), p.build(s.GetVersion(), s.GetStartedAt()))
	if r := s.GetReason(); r != "" && r != "SLAVE" { // that a slave takes no changes is no news
		p.reason(r, s.GetRemedy())
	}
	if s.GetStorageError() != "" {
		p.reason("its storage "+s.GetStorageAddress()+": "+s.GetStorageError(), "")
	}
	if len(s.GetPeersUnheard()) > 0 {
		p.reason("not heard in this reign: "+strings.Join(s.GetPeersUnheard(), ", "), "offsets that they alone have are taken when they answer")
	}
	p.tables(s)
	if s.GetOpen() {
		sayf(p.w, "  %s watched by slaves, %s with commits that are not on disk yet\n", plural(int(s.GetWatchers()), "table"), plural(int(s.GetUnsavedCommits()), "queue"))
	}
}

// tables is where a node stands with each of them, and below it what went wrong.
func (p page) tables(s *config.NodeStatus) {
	var rows [][]string
	for _, k := range s.GetKinds() {
		v := k.GetVersion()
		rows = append(rows, []string{
			kindName(k.GetKind()), syncName(k.GetState()), itoa(v.GetEntries()), versionText(v.GetDataVersion()), fmt.Sprintf("%016x", v.GetSum()),
			p.last(k), ago(p.now, k.GetSavedAt().AsTime()),
		})
	}
	p.rows([]string{"TABLE", "STATE", "ENTRIES", "VERSION", "SUM", "LAST ROUND", "FILE SAVED"}, rows...)
	for text, tables := range alike(s.GetKinds(), failureOf) {
		p.reason(strings.Join(tables, ", ")+": "+text, remedyOf(s.GetKinds(), text))
	}
	for text, tables := range alike(s.GetKinds(), refusedOf) {
		say(p.w, wrap("  refused since the start, ", strings.Join(tables, ", ")+": "+text, p.width))
	}
}

// alike yields what is to be said of tables, each text once, with the tables that it is true for.
func alike(kinds []*config.KindStatus, of func(*config.KindStatus) string) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		var texts []string
		tables := map[string][]string{}
		for _, k := range kinds {
			if text := of(k); text != "" {
				if tables[text] == nil {
					texts = append(texts, text)
				}
				tables[text] = append(tables[text], kindName(k.GetKind()))
			}
		}
		for _, text := range texts {
			if !yield(text, tables[text]) {
				return
			}
		}
	}
}

// failureOf is why a table is not in sync, without the remedy.
func failureOf(k *config.KindStatus) string {
	return strings.TrimSuffix(k.GetLastError(), "; "+k.GetRemedy())
}

func remedyOf(kinds []*config.KindStatus, failure string) string {
	for _, k := range kinds {
		if failureOf(k) == failure {
			return k.GetRemedy()
		}
	}
	return ""
}

// refusedOf is what a node has refused of a table, by reason.
func refusedOf(k *config.KindStatus) string {
	var refused []string
	for _, reason := range slices.Sorted(maps.Keys(k.GetRefused())) {
		refused = append(refused, fmt.Sprintf("%s %d", reason, k.GetRefused()[reason]))
	}
	return strings.Join(refused, ", ")
}

// last is a slave's last round of a table that went well.
func (p page) last(k *config.KindStatus) string {
	if k.GetState() == configsyncv1.SyncState_SYNC_STATE_LEADING {
		return "-"
	}
	return ago(p.now, k.GetLastSuccess().AsTime())
}

// versionText writes a version as state version and counter.
func versionText(v *config.Version) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%d.%d", v.GetStateVersion(), v.GetCounter())
}

// syncName writes a state as words.
func syncName(s configsyncv1.SyncState) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.String(), "SYNC_STATE_"), "_", " "))
}
