package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// group is the ledger's part of the story: three nodes, one of them the leader.
type group struct {
	cluster *cluster
	client  *ledger.Client
	load    *appends
	leader  string // a unit
	term    int64
	cut     []entry // of the old leader's log, gone after its return
	end     int64   // last index at the end
	sum     []byte
}

// memberID is the id of the ledger numbered i.
func memberID(i int) string { return fmt.Sprintf("n%d", i) }

func (g *group) id(unit string) string { return memberID(slices.Index(g.cluster.ledgers, unit)) }

func (g *group) others(unit string) []string {
	return slices.DeleteFunc(slices.Clone(g.cluster.ledgers), func(n string) bool { return n == unit })
}

// run tells the ledger's part.
func (g *group) run(ctx context.Context) error {
	var addrs []string
	for _, n := range g.cluster.ledgers {
		addrs = append(addrs, g.cluster.addr(n))
	}
	var err error
	if g.client, err = ledger.Dial(ledger.Options{Addresses: addrs, Timeout: patience}); err != nil {
		return err
	}
	defer func() { _ = g.client.Close() }() // nothing is sent any more
	for _, act := range []func(context.Context) error{g.begin, g.killLeader, g.leaveTail, g.prove} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (g *group) begin(ctx context.Context) error {
	step("A ledger of three nodes elects its leader")
	c := g.cluster
	if err := c.start(c.ledgers...); err != nil {
		return err
	}
	for _, n := range c.ledgers {
		if _, err := c.awaitLedger(ctx, n, "starting", func(*ledgerv1.StatusResponse) bool { return true }); err != nil {
			return err
		}
	}
	_, err := await(ctx, "bootstrap", func(ctx context.Context) (*ledgerv1.BootstrapResponse, error) {
		r, err := c.ledgerAdmin(c.ledgers[0]).Bootstrap(ctx, &ledgerv1.BootstrapRequest{Members: []string{"n0", "n1", "n2"}})
		if errdefs.ReasonOf(err) == "GROUP_EXISTS" { // a try before had come through
			return r, nil
		}
		return r, err
	}, func(*ledgerv1.BootstrapResponse) bool { return true })
	if err != nil {
		return err
	}
	say("n0 %s, n1 %s and n2 %s were empty; bootstrap makes them a group", c.addr(c.ledgers[0]), c.addr(c.ledgers[1]), c.addr(c.ledgers[2]))
	began := time.Now()
	if err := g.elected(ctx); err != nil {
		return err
	}
	say("%s leads term %d after %v", g.id(g.leader), g.term, time.Since(began).Round(time.Millisecond))
	return nil
}

// elected waits for a leader of a later term.
func (g *group) elected(ctx context.Context) error {
	return g.find(ctx, g.term+1)
}

// find waits for the leader of the term least or of a later one.
func (g *group) find(ctx context.Context, least int64) error {
	st, err := await(ctx, fmt.Sprintf("an election for term %d or later", least), func(ctx context.Context) (*ledgerv1.StatusResponse, error) {
		var newest *ledgerv1.StatusResponse
		for _, n := range g.cluster.ledgers {
			one, cancel := context.WithTimeout(ctx, time.Second)
			st, err := g.cluster.ledgerAdmin(n).Status(one, &ledgerv1.StatusRequest{}, grpc.WaitForReady(false))
			cancel()
			if err == nil && st.GetRole() == ledgerv1.Role_ROLE_LEADER && st.GetTerm() > newest.GetTerm() {
				newest = st
			}
		}
		return newest, nil
	}, func(st *ledgerv1.StatusResponse) bool { return st.GetTerm() >= least })
	if err != nil {
		return err
	}
	for i, n := range g.cluster.ledgers {
		if memberID(i) == st.GetId() {
			g.leader, g.term = n, st.GetTerm()
		}
	}
	return nil
}

func (g *group) killLeader(ctx context.Context) error {
	step("Appends go on while the leader is killed with -9")
	g.load = startAppends(ctx, g.client)
	if err := g.load.during(ctx, "all three there"); err != nil {
		return err
	}
	if err := g.find(ctx, g.term); err != nil { // there may have been another election on a busy machine
		return err
	}
	old := g.leader
	began := time.Now()
	if err := g.cluster.kill(old); err != nil {
		return err
	}
	if err := g.elected(ctx); err != nil {
		return err
	}
	say("%s is killed: %s leads term %d after %v", g.id(old), g.id(g.leader), g.term, time.Since(began).Round(time.Millisecond))
	if err := g.load.during(ctx, g.id(old)+" is dead"); err != nil {
		return err
	}
	if err := g.comeBack(ctx, old); err != nil {
		return err
	}
	return g.load.during(ctx, g.id(old)+" is back")
}

// comeBack starts a node and waits until the leader has it in the state APPEND, without a lag.
func (g *group) comeBack(ctx context.Context, node string) error {
	if err := g.cluster.start(node); err != nil {
		return err
	}
	var seen []string
	_, err := await(ctx, node+": following", func(ctx context.Context) (*ledgerv1.StatusResponse, error) {
		if err := g.find(ctx, g.term); err != nil {
			return nil, err
		}
		return g.cluster.ledgerAdmin(g.leader).Status(ctx, &ledgerv1.StatusRequest{})
	}, func(st *ledgerv1.StatusResponse) bool {
		for _, f := range st.GetFollowers() {
			if f.GetId() != g.id(node) || !f.GetConnected() {
				continue
			}
			if s := ledger.PushStateName(f.GetState()); len(seen) == 0 || seen[len(seen)-1] != s {
				seen = append(seen, s)
			}
			return f.GetState() == ledgerv1.PushState_PUSH_STATE_APPEND && !f.GetLearner() && f.GetLag() < appendsAtATime
		}
		return g.leader == node
	})
	if err == nil && len(seen) > 0 {
		say("%s is back; what %s did about it: %s", g.id(node), g.id(g.leader), strings.Join(seen, ", "))
	}
	return err
}

// tries is how often the leader may lose its term, on a busy machine, before its log has got a tail.
const tries = 5

// leaveTail leaves entries in the log of one node only, and has another one lead.
func (g *group) leaveTail(ctx context.Context) error {
	step("Entries that only an old leader has")
	var st *ledgerv1.StatusResponse
	for try, ok := 1, false; !ok; try++ {
		if try > tries {
			return fmt.Errorf("no leader kept its term until its followers were dead, in %d tries", tries)
		}
		var err error
		if st, ok, err = g.isolate(ctx); err != nil {
			return err
		}
		if !ok {
			if err := g.cluster.start(g.others(g.leader)...); err != nil {
				return err
			}
			if err := g.load.during(ctx, "once more"); err != nil {
				return err
			}
		}
	}
	old, oldTerm := g.leader, st.GetTerm()
	rest := g.others(old)
	if err := g.cluster.kill(old); err != nil {
		return err
	}
	before, err := readEntries(g.cluster.folder(old))
	if err != nil {
		return err
	}
	say("then it is killed as well; its log ends at entry %d, acknowledged was nothing behind %d", len(before)-1, st.GetCommittedIndex())
	began := time.Now()
	if err := g.cluster.start(rest...); err != nil {
		return err
	}
	g.term = oldTerm
	if err := g.elected(ctx); err != nil {
		return err
	}
	say("%s and %s come back without it: %s leads term %d after %v", g.id(rest[0]), g.id(rest[1]), g.id(g.leader), g.term, time.Since(began).Round(time.Millisecond))
	if err := g.load.during(ctx, g.id(old)+" is dead"); err != nil {
		return err
	}
	if err := g.comeBack(ctx, old); err != nil {
		return err
	}
	if err := g.load.during(ctx, g.id(old)+" is back"); err != nil {
		return err
	}
	if err := g.load.stop(); err != nil {
		return err
	}
	if err := g.atRest(ctx); err != nil {
		return err
	}
	return g.showCut(ctx, old, before)
}

// isolate kills the leader's followers under load and waits until it has got entries since; ok is false when it had lost its term
// before. It returns the leader's last status.
func (g *group) isolate(ctx context.Context) (st *ledgerv1.StatusResponse, ok bool, err error) {
	if err := g.find(ctx, g.term); err != nil {
		return nil, false, err
	}
	rest := g.others(g.leader)
	if err := g.cluster.kill(rest...); err != nil {
		return nil, false, err
	}
	const enough, least = 100, 10
	alone, err := g.cluster.ledgerAdmin(g.leader).Status(ctx, &ledgerv1.StatusRequest{})
	if err != nil {
		return nil, false, err
	}
	st, err = g.cluster.awaitLedger(ctx, g.leader, "appends without followers", func(st *ledgerv1.StatusResponse) bool {
		return st.GetRole() != ledgerv1.Role_ROLE_LEADER || st.GetLastIndex()-alone.GetLastIndex() >= enough
	})
	if err != nil || st.GetLastIndex()-alone.GetLastIndex() < least {
		return nil, false, err
	}
	say("%s and %s are killed under %s, the leader of term %d: it takes appends and acknowledges none", g.id(rest[0]), g.id(rest[1]), g.id(g.leader), g.term)
	return st, true, nil
}

// showCut compares the old leader's log of before with what it is now.
func (g *group) showCut(ctx context.Context, old string, before []entry) error {
	now, err := readEntries(g.cluster.folder(old))
	if err != nil {
		return err
	}
	for i, e := range before {
		if i >= len(now) || now[i].term != e.term {
			g.cut = append(g.cut, e)
		}
	}
	if len(g.cut) == 0 {
		return fmt.Errorf("nothing was cut from the log of %s", g.id(old))
	}
	first, last := g.cut[0], g.cut[len(g.cut)-1]
	pushes, err := g.received(ctx, old, "TRUNCATE")
	if err != nil {
		return err
	}
	say("TRUNCATE, %s to %s (%s counts %s): entries %d to %d of term %d are cut, entry %d is one of term %d now",
		g.id(g.leader), g.id(old), g.id(old), pushes, first.index, last.index, first.term, first.index, now[first.index].term)
	return nil
}

// received is what a node's metrics say about messages of a type from other members.
func (g *group) received(ctx context.Context, node, kind string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.cluster.units[node].debug+"/metrics", nil)
	if err != nil {
		return "", err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "ledger_messages_received_total{") && strings.Contains(line, `dropped="false"`) && strings.Contains(line, `type="`+kind+`"`) {
			return line[strings.LastIndex(line, " ")+1 : len(line)-1], nil
		}
	}
	return "", fmt.Errorf("%s has received no %s", node, kind)
}
