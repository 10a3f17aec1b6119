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

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show role, log and links of each node of --addr, and what keeps a link from replicating",
		Long: "Show role, log and links of each node of --addr. Lines with ! say what is wrong, those with -> what to do.\n\n" +
			"Exit code 0: all nodes answer, masters are open, and nothing keeps a node or a link from replicating. 1: a node does not\n" +
			"answer, or has a reason that keeps it from that, such as NOT_ENOUGH_NODES or WRONG_CLUSTER. 2: wrong command line.\n" +
			"Damage, a full disk and what was cut and kept are shown and do not count. With -w it is 0 after Ctrl-C.",
		Example: "  tandemctl status --addr 10.0.0.1:10911,10.0.0.2:10911\n" +
			"  tandemctl status -w",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !watch {
				return a.status(cmd.Context())
			}
			if interval < 100*time.Millisecond || interval > time.Hour {
				return usagef("--interval %v is not within 100ms and 1h", interval)
			}
			return a.watch(cmd.Context(), interval)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", interval, "`time` between two showings with -w")
	return cmd
}

// view is what is known of one node.
type view struct {
	addr   string
	status *client.NodeStatus
	err    error
}

// status shows each node once. The exit code is 1 when one of them does not answer or is hindered.
func (a *app) status(ctx context.Context) error {
	return a.with(ctx, func(c *client.Client) error {
		views := make([]view, len(c.Addresses()))
		var wg sync.WaitGroup
		for i, addr := range c.Addresses() {
			wg.Go(func() {
				views[i].addr = addr
				admin, err := c.Admin(addr)
				if err != nil {
					views[i].err = err
					return
				}
				views[i].status, views[i].err = admin.Status(ctx)
			})
		}
		wg.Wait()
		var failed error
		for _, v := range views {
			failed = errors.Join(failed, v.err)
		}
		if err := a.show(a.out, views, time.Now()); err != nil {
			return err
		}
		if failed != nil && !a.json() {
			return errors.Join(flatten(failed)...)
		}
		if failed != nil || slices.ContainsFunc(views, func(v view) bool { return hindered(v.status) }) {
			return errReported
		}
		return nil
	})
}

// reasonSlave is why a slave that follows takes no puts, which is no news.
const reasonSlave = "SLAVE"

// reasonRole says that the saved role is not the configured one, which hinders nothing.
const reasonRole = "ROLE_NOT_AS_CONFIGURED"

// hindered reports whether something keeps a node from serving, or a link of it from replicating.
func hindered(s *client.NodeStatus) bool {
	r := s.GetReason()
	return s.GetRole() != storagev1.Role_ROLE_SLAVE && !s.GetOpen() || r != "" && r != reasonSlave && r != reasonRole || s.GetUpstream().GetReason() != "" ||
		slices.ContainsFunc(s.GetSlaves(), func(l *storagev1.SlaveStatus) bool { return l.GetReason() != "" })
}

// firstPicture is the longest wait for nodes before the first picture of -w.
const firstPicture = time.Second

// watch shows the nodes again and again. On a terminal it redraws in place.
func (a *app) watch(ctx context.Context, interval time.Duration) error {
	return a.with(ctx, func(c *client.Client) error {
		w := &watcher{views: make([]view, len(c.Addresses())), left: len(c.Addresses()), complete: make(chan struct{})}
		var wg sync.WaitGroup
		defer wg.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for i, addr := range c.Addresses() {
			w.views[i] = view{addr: addr}
			wg.Go(func() { w.follow(ctx, c, i, interval) })
		}
		select { // the first picture waits for all nodes, but not for one that is away
		case <-w.complete:
		case <-time.After(firstPicture):
		case <-ctx.Done():
			return nil
		}
		tick := time.NewTicker(interval)
		defer tick.Stop()
		inPlace := isTerminal(a.out) && !a.json()
		for {
			if err := a.draw(w.picture(), inPlace, interval); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil // Ctrl-C is how it ends
			case <-tick.C:
			}
		}
	})
}

// draw shows one picture: over the last one in place, else below it.
func (a *app) draw(views []view, inPlace bool, interval time.Duration) error {
	return a.drawWith(inPlace, interval, func(w io.Writer, now time.Time) error { return a.show(w, views, now) })
}

func (a *app) drawWith(inPlace bool, interval time.Duration, show func(w io.Writer, now time.Time) error) error {
	var b bytes.Buffer
	now := time.Now()
	if !a.json() {
		sayf(&b, "%s, every %v; Ctrl-C ends\n\n", now.UTC().Format("15:04:05 UTC"), interval)
	}
	if err := show(&b, now); err != nil {
		return err
	}
	out := b.Bytes()
	switch {
	case inPlace: // home, each line with the rest of the old one cleared, then everything below
		out = append([]byte("\x1b[H"), bytes.ReplaceAll(out, []byte("\n"), []byte("\x1b[K\n"))...)
		out = append(out, "\x1b[J"...)
	case !a.json():
		out = append(out, '\n')
	}
	_, err := a.out.Write(out)
	return err
}

// watcher keeps the last status of each node.
type watcher struct {
	mu       sync.Mutex
	views    []view
	left     int           // nodes of which nothing is known yet
	complete chan struct{} // closed when there are none
}

func (w *watcher) set(i int, st *client.NodeStatus, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &w.views[i]
	if v.status == nil && v.err == nil {
		if w.left--; w.left == 0 {
			close(w.complete)
		}
	}
	v.status, v.err = st, err
}

func (w *watcher) picture() []view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]view(nil), w.views...)
}

// follow watches one node and comes back to it while it is away.
func (w *watcher) follow(ctx context.Context, c *client.Client, i int, interval time.Duration) {
	for ctx.Err() == nil {
		admin, err := c.Admin(c.Addresses()[i])
		if err == nil {
			err = admin.WatchStatus(ctx, interval, func(st *client.NodeStatus) error {
				w.set(i, st, nil)
				return nil
			})
		}
		if ctx.Err() != nil {
			return
		}
		w.set(i, nil, err)
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
}

// show writes the picture of all nodes as asked for.
func (a *app) show(w io.Writer, views []view, now time.Time) error {
	if a.json() {
		for _, v := range views {
			if err := printView(w, v); err != nil {
				return err
			}
		}
		return nil
	}
	for i, v := range views {
		if i > 0 {
			say(w)
		}
		p := page{w: w, width: width(a.out), line: lineWidth(a.out), now: now, ctl: a.name()}
		p.node(v)
	}
	return nil
}

// printView writes one node as a line of JSON.
func printView(w io.Writer, v view) error {
	line := struct {
		Address string          `json:"address"`
		Status  json.RawMessage `json:"status,omitempty"`
		Error   string          `json:"error,omitempty"`
	}{Address: v.addr}
	if v.err != nil {
		line.Error = v.err.Error()
	}
	if v.status != nil {
		b, err := protoJSON(v.status)
		if err != nil {
			return err
		}
		line.Status = b
	}
	return printJSON(w, line)
}

// page writes nodes for people.
type page struct {
	w     io.Writer
	width int // of remedies
	line  int // of what nodes that are away say
	now   time.Time
	ctl   string // how the user starts this program
}

func (p page) node(v view) {
	w := p.w
	if v.status == nil {
		why := "no answer yet"
		if v.err != nil {
			why, _ = explain(v.err)
		}
		say(w, wrap(v.addr+"  ", "not reached: "+why, p.line))
		return
	}
	s := v.status
	state := ", open"
	switch {
	case s.GetRole() == storagev1.Role_ROLE_SLAVE:
		state = ""
	case !s.GetOpen():
		state = ", puts refused"
	}
	sayf(w, "%s  %s/%d  %s%s  (cluster %s, tandem %s%s)\n", v.addr, s.GetBrokerName(), s.GetNodeId(),
		client.RoleName(s.GetRole()), state, s.GetCluster(), s.GetVersion(), uptime(s, p.now))
	u := s.GetUpstream()
	linked := u.GetAddress() != ""
	switch r := s.GetReason(); {
	case r == reasonSlave && !linked && u.GetReason() != "": // it has found nobody yet
		p.reason(u.GetReason(), u.GetRemedy())
	case r == "", r == reasonSlave, linked && r == u.GetReason(): // that a slave takes no puts is no news
	default:
		p.reason(r, s.GetRemedy())
	}
	showLog(w, s)
	if linked {
		p.upstream(u)
	}
	if s.GetRole() != storagev1.Role_ROLE_SLAVE || len(s.GetSlaves()) > 0 {
		p.slaves(s)
	}
	p.losses(v.addr, s)
}

// damage tells what the node serves around.
func (p page) damage(addr string, d *storagev1.KnownDamage) {
	if d == nil {
		return
	}
	var what, where []string
	for _, n := range []struct {
		n   int64
		one string
	}{{d.GetRecords(), "damaged record"}, {d.GetUnits(), "wrong queue unit"}} {
		if n.n > 0 {
			what = append(what, plural(int(n.n), n.one))
		}
	}
	for i, place := range d.GetPlaces() {
		text := fmt.Sprintf("%d to %d", place.GetFromOffset(), place.GetToOffset())
		if u := place.GetUnit(); u != "" {
			text = u
		}
		if more := d.GetRecords() + d.GetUnits() - int64(len(d.GetPlaces())); more > 0 && i == len(d.GetPlaces())/2 {
			where = append(where, fmt.Sprintf("%d more", more))
		}
		where = append(where, text+" ("+place.GetFoundBy()+")")
	}
	p.reason(strings.Join(what, ", ")+": "+strings.Join(where, ", "), fmt.Sprintf("`%[1]s repair %[2]s --from PEER` takes the bytes of another node; "+
		"`%[1]s scrub %[2]s` looks for more", p.ctl, addr))
}

// losses tells what the log lacks, or may lack.
func (p page) losses(addr string, s *client.NodeStatus) {
	p.damage(addr, s.GetDamage())
	if free := s.GetDiskFree(); free > 0 && free < s.GetFileSize() {
		p.reason(fmt.Sprintf("the disk has no room for another log file (%s): puts answer DISK_FULL once the last one is full", sizeText(s.GetFileSize())),
			"free some space on it, or enlarge it")
	}
	if !s.GetWhole() && s.GetWatermarks().GetWrittenOffset() > 0 {
		p.reason("the log may lack what it once had: the machine went down, files were damaged, or it is new",
			"a slave gets them from its master; until then do not make this node the master by force")
	}
	for i, r := range s.GetRollbacks() {
		remedy := ""
		if i == len(s.GetRollbacks())-1 {
			remedy = fmt.Sprintf("`%[1]s rollback list --addr %[2]s` lists what is kept; `%[1]s rollback --help` says more", p.ctl, addr)
		}
		p.reason(fmt.Sprintf("cut from this log and kept: %d to %d, by epoch %d, %s under rollback/", r.GetFromOffset(), r.GetToOffset(), r.GetEpoch(), sizeText(r.GetSize())), remedy)
	}
}

// reason writes what keeps something from working, and below it what to do.
func (p page) reason(reason, remedy string) {
	say(p.w, wrap("  ! ", reason, p.width))
	if remedy != "" {
		say(p.w, wrap("    -> ", commands(remedy, p.ctl), p.width))
	}
}

func uptime(s *client.NodeStatus, now time.Time) string {
	if s.GetStartedAt() == nil {
		return ""
	}
	return ", up " + shortDuration(now.Sub(s.GetStartedAt().AsTime()))
}

func showLog(w io.Writer, s *client.NodeStatus) {
	m := s.GetWatermarks()
	acked := "-"
	if s.GetRole() != storagev1.Role_ROLE_SLAVE {
		acked = itoa(m.GetAckedOffset())
	}
	var b bytes.Buffer
	table(&b, []string{"FIRST", "WRITTEN", "FLUSHED", "READABLE", "DISPATCHED", "ACKED", "EPOCH", "DISK FREE"}, [][]string{{
		itoa(m.GetFirstOffset()), itoa(m.GetWrittenOffset()), itoa(m.GetFlushedOffset()), itoa(m.GetReadableOffset()),
		itoa(m.GetDispatchedOffset()), acked, epochText(s), sizeText(s.GetDiskFree()),
	}})
	indent(w, b.String())
}

// epochText is the last epoch and where it begins, or what a log without epochs is.
func epochText(s *client.NodeStatus) string {
	if e := s.GetEpochs(); len(e) > 0 {
		last := e[len(e)-1]
		return itoa(last.GetEpoch()) + "@" + itoa(last.GetStartOffset())
	}
	return "0"
}

func (p page) upstream(u *storagev1.UpstreamStatus) {
	behind := sizeText(u.GetLagBytes()) + " behind"
	if u.GetState() == storagev1.LinkState_LINK_STATE_REFUSED || u.GetEndOffset() == 0 && u.GetConnects() == 0 {
		behind = "how far behind is unknown" // the upstream has not told its end, or has another history
	}
	last := ""
	if u.GetLastReceive() != nil {
		last = ", last bytes " + ago(p.now, u.GetLastReceive().AsTime())
	}
	sayf(p.w, "  follows %s: %s, %s%s, %s so far\n", u.GetAddress(), linkName(u.GetState()), behind, last, plural(int(u.GetConnects()), "connection"))
	if u.GetReason() != "" {
		p.reason(u.GetReason(), u.GetRemedy())
	}
}

func (p page) slaves(s *client.NodeStatus) {
	w := p.w
	if len(s.GetSlaves()) == 0 {
		say(w, "  no slaves")
		return
	}
	rows := make([][]string, 0, len(s.GetSlaves()))
	for _, l := range s.GetSlaves() {
		id := itoa(l.GetNodeId())
		if l.GetLegacy() {
			id = "RocketMQ"
		}
		inSync := "no"
		if l.GetInSync() {
			inSync = "yes"
		}
		acked, lag := itoa(l.GetAckedOffset()), sizeText(l.GetLagBytes())
		if l.GetAckedOffset() < 0 { // it has not reported yet
			acked, lag = "-", "unknown"
		}
		rows = append(rows, []string{
			id, l.GetAddress(), linkName(l.GetState()), inSync, acked, lag,
			shortDuration(l.GetLag().AsDuration()), ago(p.now, l.GetLastReport().AsTime()),
		})
	}
	var b bytes.Buffer
	table(&b, []string{"SLAVE", "ADDRESS", "STATE", "IN SYNC", "ACKED", "LAG", "LAG TIME", "LAST REPORT"}, rows)
	indent(w, b.String())
	if s.GetRole() != storagev1.Role_ROLE_SLAVE { // who feeds slaves counts none of them for puts
		sayf(w, "  in sync %d, required %d\n", s.GetInSyncSlaves(), s.GetRequiredAcks())
	}
	for _, l := range s.GetSlaves() {
		if l.GetReason() != "" {
			p.reason(fmt.Sprintf("slave %d: %s", l.GetNodeId(), l.GetReason()), l.GetRemedy())
		}
	}
}

func indent(w io.Writer, text string) {
	for line := range strings.Lines(text) {
		sayf(w, "  %s", line)
	}
}

// linkName writes a link's state as words.
func linkName(l storagev1.LinkState) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(l.String(), "LINK_STATE_"), "_", " "))
}
