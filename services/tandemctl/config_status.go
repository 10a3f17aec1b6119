package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/config"
)

func (a *app) configStatusCommand() *cobra.Command {
	var watch bool
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show role and tables of each node of --addr, and what keeps a table from being in sync",
		Example: "  tandemctl config status --addr 127.0.0.1:10921,127.0.0.1:20921\n" +
			"  tandemctl config status -w",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return a.configStatus(cmd.Context())
			}
			if interval < 100*time.Millisecond || interval > time.Hour {
				return usagef("--interval %v is not within 100ms and 1h", interval)
			}
			return a.configWatch(cmd.Context(), interval)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", interval, "`time` between two showings with -w")
	return cmd
}

// configNode is what is known of one node.
type configNode struct {
	addr   string
	status *config.NodeStatus
	err    error
}

// configNodes asks all nodes of --addr at once.
func configNodes(ctx context.Context, c *config.Client) []configNode {
	all := make([]configNode, len(c.Addresses()))
	var wg sync.WaitGroup
	for i, addr := range c.Addresses() {
		wg.Go(func() {
			all[i].addr = addr
			admin, err := c.Admin(addr)
			if err != nil {
				all[i].err = err
				return
			}
			all[i].status, all[i].err = admin.Status(ctx)
		})
	}
	wg.Wait()
	return all
}

// configStatus shows each node once. The exit code is 1 when one of them does not answer.
func (a *app) configStatus(ctx context.Context) error {
	return a.withConfig(func(c *config.Client) error {
		all := configNodes(ctx, c)
		if err := a.showConfigs(a.out, all, time.Now()); err != nil {
			return err
		}
		var failed error
		for _, n := range all {
			failed = errors.Join(failed, n.err)
		}
		if failed != nil && a.json() {
			return errReported
		}
		return failed
	})
}

// configWatch shows the nodes again and again. On a terminal it redraws in place.
func (a *app) configWatch(ctx context.Context, interval time.Duration) error {
	return a.withConfig(func(c *config.Client) error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		inPlace := isTerminal(a.out) && !a.json()
		for {
			ask, cancel := context.WithTimeout(ctx, min(max(interval, 500*time.Millisecond), firstPicture)) // the picture does not wait for a node that is away
			all := configNodes(ask, c)
			cancel()
			if ctx.Err() != nil {
				return nil // Ctrl-C is how it ends
			}
			err := a.drawWith(inPlace, interval, func(w io.Writer, now time.Time) error { return a.showConfigs(w, all, now) })
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
}

// showConfigs writes all nodes as asked for.
func (a *app) showConfigs(w io.Writer, all []configNode, now time.Time) error {
	for i, n := range all {
		if a.json() {
			if err := printConfig(w, n); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			say(w)
		}
		p := page{w: w, width: width(a.out), line: lineWidth(a.out), now: now, ctl: a.name()}
		p.config(n)
	}
	return nil
}

// printConfig writes one node as a line of JSON.
func printConfig(w io.Writer, n configNode) error {
	line := struct {
		Address string          `json:"address"`
		Status  json.RawMessage `json:"status,omitempty"`
		Error   string          `json:"error,omitempty"`
	}{Address: n.addr}
	if n.err != nil {
		line.Error = n.err.Error()
	} else {
		b, err := protoJSON(n.status)
		if err != nil {
			return err
		}
		line.Status = b
	}
	return printJSON(w, line)
}

func (p page) config(n configNode) {
	if n.err != nil {
		why, _ := explain(&configError{n.err})
		say(p.w, wrap(n.addr+"  ", "not reached: "+why, p.line))
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
	up := ""
	if s.GetStartedAt() != nil {
		up = ", up " + shortDuration(p.now.Sub(s.GetStartedAt().AsTime()))
	}
	sayf(p.w, "%s  %s/%d  %s  (cluster %s, tandem %s%s)\n", n.addr, s.GetBrokerName(), s.GetNodeId(), role, s.GetCluster(), s.GetVersion(), up)
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
	var b bytes.Buffer
	table(&b, []string{"TABLE", "STATE", "ENTRIES", "VERSION", "SUM", "LAST ROUND", "FILE SAVED"}, rows)
	indent(p.w, b.String())
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
