package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
)

func (a *app) ledgerStatusCommand() *cobra.Command {
	var watch bool
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the group as each node of --addr sees it: roles, terms, and what the leader does about each follower",
		Example: "  tandemctl ledger status --addr 127.0.0.1:20911,127.0.0.1:20921,127.0.0.1:20931\n" +
			"  tandemctl ledger status -w",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return a.ledgerStatus(cmd.Context())
			}
			if interval < 100*time.Millisecond || interval > time.Hour {
				return usagef("--interval %v is not within 100ms and 1h", interval)
			}
			return a.ledgerWatch(cmd.Context(), interval)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", interval, "`time` between two showings with -w")
	return cmd
}

// member is what is known of one node.
type member struct {
	addr   string
	status *ledger.NodeStatus
	err    error
}

// members asks all nodes of --addr at once.
func members(ctx context.Context, c *ledger.Client) []member {
	all := make([]member, len(c.Addresses()))
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

// ledgerStatus shows each node once. The exit code is 1 when one of them does not answer.
func (a *app) ledgerStatus(ctx context.Context) error {
	return a.withLedger(func(c *ledger.Client) error {
		all := members(ctx, c)
		if err := a.showMembers(a.out, all, time.Now()); err != nil {
			return err
		}
		var failed error
		for _, m := range all {
			failed = errors.Join(failed, m.err)
		}
		if failed != nil && a.json() {
			return errReported
		}
		return failed
	})
}

// ledgerWatch shows the nodes again and again. On a terminal it redraws in place.
func (a *app) ledgerWatch(ctx context.Context, interval time.Duration) error {
	return a.withLedger(func(c *ledger.Client) error {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		inPlace := isTerminal(a.out) && !a.json()
		for {
			ask, cancel := context.WithTimeout(ctx, min(max(interval, 500*time.Millisecond), firstPicture)) // the picture does not wait for a node that is away
			all := members(ask, c)
			cancel()
			if ctx.Err() != nil {
				return nil // Ctrl-C is how it ends
			}
			err := a.drawWith(inPlace, interval, func(w io.Writer, now time.Time) error { return a.showMembers(w, all, now) })
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

// showMembers writes all nodes as asked for.
func (a *app) showMembers(w io.Writer, all []member, now time.Time) error {
	for i, m := range all {
		if a.json() {
			if err := printMember(w, m); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			say(w)
		}
		p := page{w: w, width: width(a.out), line: lineWidth(a.out), now: now, ctl: a.name()}
		p.member(m)
	}
	return nil
}

// printMember writes one node as a line of JSON.
func printMember(w io.Writer, m member) error {
	line := struct {
		Address string          `json:"address"`
		Status  json.RawMessage `json:"status,omitempty"`
		Error   string          `json:"error,omitempty"`
	}{Address: m.addr}
	if m.err != nil {
		line.Error = m.err.Error()
	}
	if m.status != nil && m.err == nil {
		b, err := protoJSON(m.status)
		if err != nil {
			return err
		}
		line.Status = b
	}
	return printJSON(w, line)
}

func (p page) member(m member) {
	if m.err != nil {
		why, _ := explain(&ledgerError{m.err})
		say(p.w, wrap(m.addr+"  ", "not reached: "+why, p.line))
		return
	}
	s := m.status
	up := ""
	if s.GetStartedAt() != nil {
		up = ", up " + shortDuration(p.now.Sub(s.GetStartedAt().AsTime()))
	}
	sayf(p.w, "%s  %s  %s  (group %s, tandem %s%s)\n", m.addr, s.GetId(), standing(s), s.GetGroup(), s.GetVersion(), up)
	if s.GetReason() != "" {
		p.reason(s.GetReason(), s.GetRemedy())
	}
	flush := strings.ToLower(strings.TrimPrefix(s.GetFlushMode().String(), "FLUSH_MODE_"))
	var b bytes.Buffer
	table(&b, []string{"FIRST", "LAST", "COMMITTED", "SYNCED", "FLUSH", "LOG", "DISK FREE"}, [][]string{{
		itoa(s.GetFirstIndex()), itoa(s.GetLastIndex()), itoa(s.GetCommittedIndex()), itoa(s.GetSyncedIndex()), flush,
		sizeText(s.GetLogSize()), sizeText(s.GetDiskFree()),
	}})
	indent(p.w, b.String())
	if s.GetRole() == ledgerv1.Role_ROLE_LEADER && len(s.GetFollowers()) > 0 {
		p.followers(s)
	}
	p.links(s)
}

// standing is a node's role, term and what belongs to it.
func standing(s *ledger.NodeStatus) string {
	text := fmt.Sprintf("%s, term %d", ledger.RoleName(s.GetRole()), s.GetTerm())
	switch l := s.GetLeader(); {
	case s.GetRole() == ledgerv1.Role_ROLE_LEADER:
		if s.GetLease() {
			text += ", lease"
		}
	case l != "":
		text += ", leader " + l
	default:
		text += ", no leader"
	}
	if s.GetTransferee() != "" {
		text += ", handing over to " + s.GetTransferee()
	}
	if !s.GetVoter() {
		text += ", no vote"
	}
	return text
}

// followers is what a leader does about each other member.
func (p page) followers(s *ledger.NodeStatus) {
	var rows [][]string
	for _, f := range s.GetFollowers() {
		state := strings.ToLower(ledger.PushStateName(f.GetState()))
		if f.GetLearner() {
			state += ", no vote"
		}
		link := "down"
		if f.GetConnected() {
			link = "up"
		}
		rows = append(rows, []string{
			f.GetId(), f.GetAddress(), link, state, itoa(f.GetMatchIndex()), itoa(f.GetLag()), itoa(f.GetCommittedIndex()),
			itoa(f.GetInflightEntries()), shortDuration(f.GetSilent().AsDuration()),
		})
	}
	var b bytes.Buffer
	table(&b, []string{"FOLLOWER", "ADDRESS", "LINK", "STATE", "MATCH", "LAG", "COMMITTED", "IN FLIGHT", "SILENT"}, rows)
	indent(p.w, b.String())
}

// recently is how long an error of a link is worth showing after the link has come back.
const recently = time.Minute

// links tells what went wrong with the other members.
func (p page) links(s *ledger.NodeStatus) {
	for _, f := range s.GetFollowers() {
		if f.GetRefused() != ledgerv1.Reason_REASON_UNSPECIFIED {
			p.reason(fmt.Sprintf("%s refused: %s", f.GetId(), strings.TrimPrefix(f.GetRefused().String(), "REASON_")), "")
		}
		at := f.GetLastErrorTime().AsTime()
		if f.GetLastError() != "" && (!f.GetConnected() || p.now.Sub(at) < recently) {
			what, _, _ := strings.Cut(f.GetLastError(), " (address=") // which stands above
			p.reason(fmt.Sprintf("%s, %s: %s", f.GetId(), ago(p.now, at), what), "")
		}
	}
	names := make([]string, 0, len(s.GetRefused()))
	for name, n := range s.GetRefused() {
		if n > 0 {
			names = append(names, fmt.Sprintf("%s %d", name, n))
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		say(p.w, wrap("  refused since the start: ", strings.Join(names, ", "), p.width))
	}
}
