package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
)

func (a *app) ledgerStatusCommand() *cobra.Command {
	return statusCommand(&cobra.Command{
		Short: "Show the group as each node of --addr sees it: roles, terms, and what the leader does about each follower",
		Example: "  tandemctl ledger status --addr 127.0.0.1:20911,127.0.0.1:20921,127.0.0.1:20931\n" +
			"  tandemctl ledger status -w",
	}, func(ctx context.Context, every time.Duration) error {
		return a.withLedger(func(c *ledger.Client) error { return a.members(c).run(ctx, every) })
	})
}

// member is what is known of one node.
type member = view[*ledger.NodeStatus]

// members are the nodes of --addr.
func (a *app) members(c *ledger.Client) nodes[*ledger.NodeStatus] {
	return nodes[*ledger.NodeStatus]{a, c.Addresses(), func(ctx context.Context, addr string) (*ledger.NodeStatus, error) {
		admin, err := c.Admin(addr)
		if err != nil {
			return nil, err
		}
		return admin.Status(ctx)
	}, page.member}
}

func (p page) member(m member) {
	if !m.answered(p) {
		return
	}
	s := m.status
	sayf(p.w, "%s  %s  %s  (group %s, %s)\n", m.addr, s.GetId(), standing(s), s.GetGroup(), p.build(s.GetVersion(), s.GetStartedAt()))
	if s.GetReason() != "" {
		p.reason(s.GetReason(), s.GetRemedy())
	}
	flush := strings.ToLower(strings.TrimPrefix(s.GetFlushMode().String(), "FLUSH_MODE_"))
	p.rows([]string{"FIRST", "LAST", "COMMITTED", "SYNCED", "FLUSH", "LOG", "DISK FREE"}, []string{
		itoa(s.GetFirstIndex()), itoa(s.GetLastIndex()), itoa(s.GetCommittedIndex()), itoa(s.GetSyncedIndex()), flush,
		sizeText(s.GetLogSize()), sizeText(s.GetDiskFree()),
	})
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
	p.rows([]string{"FOLLOWER", "ADDRESS", "LINK", "STATE", "MATCH", "LAG", "COMMITTED", "IN FLIGHT", "SILENT"}, rows...)
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
