package main

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // what peer/Ledger.java prints
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/ledger"
)

const (
	dledgerVersion = "0.3.1.2"
	// Files are so small that entries end in all ways at their ends.
	ledgerData, ledgerIndex = 64 << 10, 16 << 10
	members                 = 3
	noOpChannel             = 0x54444D01
)

// dledger is DLedger as Maven resolved it, with peer/Ledger.java.
type dledger struct {
	*stage
	classpath, source string
	runs              int
}

func (s *stage) dledger(ctx context.Context) (*dledger, error) {
	home := filepath.Join(s.dir, "dledger-"+dledgerVersion)
	for _, name := range []string{"ledger.xml", "Ledger.java"} {
		b, err := peerFiles.ReadFile("peer/" + name)
		if err != nil {
			return nil, err
		}
		if err := write(filepath.Join(home, name), bytes.NewReader(b)); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(home, "classpath")
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join(home, "ledger.xml"), "-Ddledger="+dledgerVersion,
		"dependency:build-classpath", "-Dmdep.outputFile="+list)
	if out, err := mvn.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("resolve DLedger %s by Maven: %w: %s", dledgerVersion, err, bytes.TrimSpace(out))
	}
	b, err := os.ReadFile(list)
	return &dledger{stage: s, classpath: strings.TrimSpace(string(b)), source: filepath.Join(home, "Ledger.java")}, err
}

// run runs a command of peer/Ledger.java on a folder to its end and returns the entries that it printed.
func (d *dledger) run(ctx context.Context, command, folder string, args ...string) ([]string, error) {
	port, err := d.ports.Take(members)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range members {
		peers = append(peers, fmt.Sprintf("n%d-127.0.0.1:%d", i, port+i))
	}
	all := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
		"--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
		"-Duser.home=" + d.dir, fmt.Sprintf("-Ddata=%d", ledgerData), fmt.Sprintf("-Dindex=%d", ledgerIndex), "-cp", d.classpath,
		d.source, command, folder, strings.Join(peers, ";"),
	}
	cmd := exec.Command("java", append(all, args...)...) //nolint:noctx // the stage ends it
	cmd.Dir = d.dir
	var out bytes.Buffer
	cmd.Stdout = &out
	d.runs++
	p, err := d.start(fmt.Sprintf("dledger-%d-%s", d.runs, command), cmd)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return nil, fmt.Errorf("DLedger's %s of %s: exit code %d", command, folder, code)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line, ok := strings.CutPrefix(line, "> "); ok {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines, nil
}

// readAs has DLedger read the folder of each member and holds it against want. Behind that there may be no-ops: nodes that stop
// hand leadership over.
func (d *dledger) readAs(ctx context.Context, folder string, want []string) error {
	for i := range members {
		got, err := d.run(ctx, "read", folder, fmt.Sprintf("n%d", i))
		if err != nil {
			return err
		}
		if err := begins(want, got); err != nil {
			return fmt.Errorf("DLedger, on n%d's folder: %w", i, err)
		}
	}
	return nil
}

// begins says whether got begins with want and goes on with no-ops only.
func begins(want, got []string) error {
	if len(got) < len(want) {
		return fmt.Errorf("%d entries, at least %d are due", len(got), len(want))
	}
	for _, line := range got[len(want):] {
		if !strings.Contains(line, fmt.Sprintf("\t%d\t0\t", noOpChannel)) {
			return fmt.Errorf("entry %q, which nobody appended", line)
		}
	}
	return sameEntries(want, got[:len(want)])
}

// sameEntries compares entries, which are lines as peer/Ledger.java prints them. What has a key is longer on the disk than
// Tandem's clients see it, and marked by its channel: of such an entry only index and term are compared.
func sameEntries(want, got []string) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d entries, %d are due", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if prefix, ok := strings.CutSuffix(w, keyed); ok {
			if !strings.HasPrefix(g, prefix) {
				return fmt.Errorf("entry %q, due is %q", g, w)
			}
			continue
		}
		if g != w {
			return fmt.Errorf("entry %q, due is %q", g, w)
		}
	}
	return nil
}

// keyed ends the line of an entry with a key.
const keyed = "with a key"

// entryLine is an entry as peer/Ledger.java prints it.
func entryLine(e *ledger.Entry) string {
	switch {
	case e.GetNoOp():
		return fmt.Sprintf("%d\t%d\t%d\t0\t%x", e.GetIndex(), e.GetTerm(), noOpChannel, sha1.Sum(nil)) //nolint:gosec // see above
	case len(e.GetClientId()) > 0:
		return fmt.Sprintf("%d\t%d\t%s", e.GetIndex(), e.GetTerm(), keyed)
	}
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%x", e.GetIndex(), e.GetTerm(), e.GetChannel(), len(e.GetBody()), sha1.Sum(e.GetBody())) //nolint:gosec // see above
}

// group is Tandem's three nodes on the folders dledger-n0 to dledger-n2 below one folder.
type group struct {
	s       *stage
	folder  string
	configs []string
	addrs   []string
	nodes   []*process
	client  *ledger.Client
}

// group writes the configurations; nothing is started.
func (s *stage) group(folder string) (*group, error) {
	g := &group{s: s, folder: folder}
	var peers []string
	for i := range members {
		port, err := s.ports.Take(1)
		if err != nil {
			return nil, err
		}
		g.addrs = append(g.addrs, fmt.Sprintf("127.0.0.1:%d", port))
		peers = append(peers, fmt.Sprintf("n%d-%s", i, g.addrs[i]))
	}
	for i := range members {
		name := filepath.Join(s.dir, fmt.Sprintf("%s-n%d.yaml", filepath.Base(folder), i))
		text := fmt.Sprintf("group: interop\nselfId: n%d\npeers: [%s]\nstorePath: %s\nlisten: %s\n"+
			"mappedFileSizeForEntryData: %d\nmappedFileSizeForEntryIndex: %d\ntelemetry: {debugListen: \"127.0.0.1:0\"}\n",
			i, strings.Join(peers, ", "), g.dir(i), g.addrs[i], ledgerData, ledgerIndex)
		if err := write(name, strings.NewReader(text)); err != nil {
			return nil, err
		}
		g.configs = append(g.configs, name)
	}
	g.nodes = make([]*process, members)
	return g, nil
}

// dir is a node's folder.
func (g *group) dir(i int) string { return filepath.Join(g.folder, fmt.Sprintf("dledger-n%d", i)) }

// tool runs the ledger binary with a subcommand on each node's configuration.
func (g *group) tool(ctx context.Context, args ...string) error {
	for _, config := range g.configs {
		all := append([]string{"-config", config}, args...)
		if out, err := exec.CommandContext(ctx, filepath.Join(g.s.bin, "ledger"), all...).CombinedOutput(); err != nil {
			return fmt.Errorf("ledger %s: %w: %s", strings.Join(all, " "), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

func (g *group) startNode(i int) (err error) {
	name := fmt.Sprintf("%s-n%d", filepath.Base(g.folder), i)
	g.nodes[i], err = g.s.start(name, exec.Command(filepath.Join(g.s.bin, "ledger"), "-config", g.configs[i])) //nolint:noctx // the stage ends it
	return err
}

// start starts all nodes and waits for a leader.
func (g *group) start(ctx context.Context) (err error) {
	for i := range members {
		if err := g.startNode(i); err != nil {
			return err
		}
	}
	if g.client, err = ledger.Dial(ledger.Options{Addresses: g.addrs, Timeout: patience}); err != nil {
		return err
	}
	return g.even(ctx)
}

// even waits until all nodes have the same log and know it to be committed.
func (g *group) even(ctx context.Context) error {
	var last string
	err := await(ctx, "Tandem's three logs being even", func() (bool, error) {
		var first *ledger.NodeStatus
		for i, addr := range g.addrs {
			if g.nodes[i].ended() {
				return false, fmt.Errorf("n%d ended by itself: %v", i, g.nodes[i].cmd.ProcessState)
			}
			admin, err := g.client.Admin(addr)
			if err != nil {
				return false, err
			}
			st, err := admin.Status(ctx)
			last = fmt.Sprint(st, err)
			if err != nil || st.GetLeader() == "" || st.GetCommittedIndex() != st.GetLastIndex() {
				return false, nil //nolint:nilerr // it starts, or catches up
			}
			if first == nil {
				first = st
			}
			if st.GetLastIndex() != first.GetLastIndex() || st.GetTerm() != first.GetTerm() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w; last status: %s", err, last)
	}
	return nil
}

// stop ends all nodes as an operator does, and checks their folders.
func (g *group) stop(ctx context.Context) error {
	for i, p := range g.nodes {
		if err := p.stop(ctx); err != nil {
			return err
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("the ledger n%d exits with %d after SIGTERM", i, code)
		}
	}
	if err := g.client.Close(); err != nil {
		return err
	}
	return g.tool(ctx, "check")
}

// entries returns what all nodes show, which must be the same.
func (g *group) entries(ctx context.Context) ([]string, error) {
	var all []string
	for i, addr := range g.addrs {
		c, err := ledger.Dial(ledger.Options{Addresses: []string{addr}})
		if err != nil {
			return nil, err
		}
		lines, err := readAll(ctx, c)
		_ = c.Close() // nothing is asked any more
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = lines
		} else if !slices.Equal(all, lines) {
			return nil, fmt.Errorf("n%d shows other entries than n0", i)
		}
	}
	return all, nil
}

func readAll(ctx context.Context, c *ledger.Client) ([]string, error) {
	var lines []string
	for next := int64(0); ; {
		resp, err := c.GetRange(ctx, &ledgerv1.GetRangeRequest{Index: next, Consistency: ledger.Local})
		if err != nil || len(resp.GetEntries()) == 0 {
			return lines, err
		}
		for _, e := range resp.GetEntries() {
			lines = append(lines, entryLine(e))
		}
		next = resp.GetNextIndex()
	}
}

// load appends n entries, every third with a key, and kills the leader with -9 half-way. The first append behind that has a key: it
// may leave on the dead leader's connection, and without one its fate would be unknown.
func (g *group) load(ctx context.Context, n int) error {
	plain := g.client.Appender(ledger.AppenderOptions{NoKey: true, Channel: 7})
	once := g.client.Appender(ledger.AppenderOptions{})
	for i := range n {
		if i == n/2 {
			if err := g.crashLeader(ctx); err != nil {
				return err
			}
		}
		body := make([]byte, 1+rand.IntN(1500))
		for j := range body {
			body[j] = byte(rand.Uint32())
		}
		a := plain
		if i%3 == 0 || i == n/2 {
			a = once
		}
		if _, err := a.Append(ctx, body); err != nil {
			return err
		}
	}
	return g.even(ctx)
}

func (g *group) crashLeader(ctx context.Context) error {
	addr, err := g.client.FindLeader(ctx)
	if err != nil {
		return err
	}
	i := slices.Index(g.addrs, addr)
	if i < 0 {
		return fmt.Errorf("%s leads, which is no member", addr)
	}
	if err := g.nodes[i].kill(); err != nil {
		return err
	}
	return g.startNode(i)
}
