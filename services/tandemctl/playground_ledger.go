package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	// groupSize is how many nodes a playground's ledger has: the least of which one may be lost.
	groupSize = 3
	// ledgerIndexSize is the length of an index file where none exists yet; of 128 Ki entries.
	ledgerIndexSize = 4 << 20
	// ledgerFileUnit divides the lengths of a ledger's files.
	ledgerFileUnit = 32
)

// memberConfig is the part of a ledger's configuration that the playground sets.
type memberConfig struct {
	Group     string           `yaml:"group"`
	SelfID    string           `yaml:"selfId"`
	Peers     []string         `yaml:"peers"`
	StorePath string           `yaml:"storePath"`
	Listen    string           `yaml:"listen"`
	DataSize  int64            `yaml:"mappedFileSizeForEntryData,omitempty"`
	IndexSize int64            `yaml:"mappedFileSizeForEntryIndex,omitempty"`
	Telemetry telemetrySection `yaml:"telemetry"`
}

// memberConfigOf returns the YAML of one node.
func (p *playground) memberConfigOf(n *playNode) ([]byte, error) {
	c := memberConfig{
		Group: "playground", SelfID: n.name, StorePath: n.dir, Listen: n.listen, Telemetry: telemetrySection{DebugListen: n.debugListen},
	}
	for _, peer := range p.nodes {
		c.Peers = append(c.Peers, peer.name+"-"+peer.listen)
	}
	if names, err := os.ReadDir(filepath.Join(n.dir, "data")); err != nil || len(names) == 0 { // files that exist say their size themselves
		c.DataSize, c.IndexSize = p.f.fileSize, ledgerIndexSize
	}
	return yaml.Marshal(c)
}

// prepareGroup makes folders, chooses ports and writes a configuration for each member.
func (p *playground) prepareGroup() error {
	ports, err := freePorts(2 * groupSize)
	if err != nil {
		return err
	}
	p.exits = make(chan *playNode, groupSize)
	for id := range groupSize {
		name := fmt.Sprintf("n%d", id)
		root := filepath.Join(p.f.dir, name)
		p.nodes = append(p.nodes, &playNode{
			name: name, id: id, bin: p.bin, dir: filepath.Join(root, "data"), config: filepath.Join(root, "ledger.yaml"), logFile: filepath.Join(root, "ledger.log"),
			listen: ports[2*id], debugListen: ports[2*id+1],
		})
		if err := os.MkdirAll(filepath.Join(root, "data"), 0o755); err != nil {
			return fmt.Errorf("make a folder for %s: %w", name, err)
		}
	}
	for _, n := range p.nodes {
		b, err := p.memberConfigOf(n)
		if err == nil {
			err = os.WriteFile(n.config, b, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the configuration of %s: %w", n.name, err)
		}
	}
	return nil
}

// awaitGroup makes the nodes a group, if they are none yet, and waits until one leads and the others follow it.
func (p *playground) awaitGroup(ctx context.Context) error {
	c, err := ledger.Dial(p.a.ledgerOptions(strings.Split(p.addresses(), ",")...))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	return p.await(ctx, "not all nodes followed a leader in time", func(string) (string, error) {
		all := p.a.members(c).ask(ctx)
		now := groupProgress(all)
		if now != "" && newGroup(all) {
			return p.bootstrap(ctx, c)
		}
		return now, nil
	})
}

// newGroup says whether all members answer, and none has been part of a group.
func newGroup(all []member) bool {
	for _, m := range all {
		if m.err != nil || m.status.GetVoter() || m.status.GetTerm() > 0 || m.status.GetLastIndex() >= 0 {
			return false
		}
	}
	return true
}

// bootstrap makes the new group. A member that does not reach another yet is asked again.
func (p *playground) bootstrap(ctx context.Context, c *ledger.Client) (string, error) {
	admin, err := c.Admin("")
	if err != nil {
		return "", err
	}
	var ids []string
	for _, n := range p.nodes {
		ids = append(ids, n.name)
	}
	switch _, err := admin.Bootstrap(ctx, ids); {
	case err == nil:
		return "the new group elects its first leader", nil
	case errdefs.ClassOf(err) == errdefs.Unavailable, errors.Is(err, context.DeadlineExceeded):
		return "the nodes do not reach each other yet", nil
	default:
		return "", mark(err, ledgerAdvice)
	}
}

// groupProgress says what the group is waiting for, or nothing.
func groupProgress(all []member) string {
	leader := false
	for _, m := range all {
		switch {
		case m.err != nil:
			return "not all nodes answer yet"
		case m.status.GetLeader() == "" || !m.status.GetVoter():
			return "no leader yet"
		case m.status.GetRole() != ledgerv1.Role_ROLE_LEADER:
			continue
		}
		leader = true
		for _, f := range m.status.GetFollowers() {
			if !f.GetConnected() || f.GetState() != ledgerv1.PushState_PUSH_STATE_APPEND {
				return f.GetId() + " does not follow yet"
			}
		}
	}
	if !leader {
		return "no leader yet"
	}
	return ""
}

// introduceGroup prints addresses and what to try.
func (p *playground) introduceGroup() {
	rows := make([][]string, 0, len(p.nodes))
	for _, n := range p.nodes {
		rows = append(rows, []string{n.name, n.listen, n.debugListen, itoa(n.pid), n.dir})
	}
	w := p.a.out
	say(w, "\nReady.")
	say(w)
	table(w, []string{"NODE", "GRPC", "DEBUG", "PID", "FOLDER"}, rows)
	sayf(w, "\nTry, in another terminal:\n\n  export %s=%s\n", ledgerAddrVar, p.addresses())
	sayf(w, "  %[1]s ledger append hello\n  %[1]s ledger get\n  %[1]s ledger tail\n  %[1]s ledger status -w\n  %[1]s ledger transfer\n"+
		"  %[1]s ledger append --count 100000 --number --stream -q load\n", p.a.name())
	sayf(w, "  kill -9 PID   # of the leader, in the middle of that: nothing is lost, and nothing stands twice\n")
	sayf(w, "  curl -s http://%s/metrics\n\nCtrl-C stops everything.\n", p.nodes[0].debugListen)
}
