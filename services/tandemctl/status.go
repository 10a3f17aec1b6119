package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

func (a *app) statusCommand() *cobra.Command {
	return statusCommand(&cobra.Command{
		Short: "Show role, log and links of each node of --addr, and what keeps a link from replicating",
		Long: "Show role, log and links of each node of --addr. Lines with ! say what is wrong, those with -> what to do.\n\n" +
			"Exit code 0: all nodes answer, masters are open, and nothing keeps a node or a link from replicating. 1: a node does not\n" +
			"answer, or has a reason that keeps it from that, such as NOT_ENOUGH_NODES or WRONG_CLUSTER. 2: wrong command line.\n" +
			"Damage, a full disk and what was cut and kept are shown and do not count. With -w it is 0 after Ctrl-C.",
		Example: "  tandemctl status --addr 10.0.0.1:10911,10.0.0.2:10911\n" +
			"  tandemctl status -w",
	}, func(ctx context.Context, every time.Duration) error {
		return a.with(ctx, func(c *client.Client) error {
			if every > 0 {
				return a.watch(ctx, c, every)
			}
			views, err := a.storages(c).once(ctx)
			if err == nil && slices.ContainsFunc(views, func(v storageNode) bool { return hindered(v.status) }) {
				return errReported
			}
			return err
		})
	})
}

// storageNode is what is known of one node.
type storageNode = view[*client.NodeStatus]

// storages are the nodes of --addr.
func (a *app) storages(c *client.Client) nodes[*client.NodeStatus] {
	return nodes[*client.NodeStatus]{a, c.Addresses(), func(ctx context.Context, addr string) (*client.NodeStatus, error) {
		admin, err := c.Admin(addr)
		if err != nil {
			return nil, err
		}
		return admin.Status(ctx)
	}, page.storage}
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

// watch shows the nodes again and again, as each of them tells what is new.
func (a *app) watch(ctx context.Context, c *client.Client, interval time.Duration) error {
	w := &watcher{views: make([]storageNode, len(c.Addresses())), left: len(c.Addresses()), complete: make(chan struct{})}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i, addr := range c.Addresses() {
		w.views[i] = storageNode{addr: addr}
		wg.Go(func() { w.follow(ctx, c, i, interval) })
	}
	select { // the first picture waits for all nodes, but not for one that is away
	case <-w.complete:
	case <-time.After(firstPicture):
	case <-ctx.Done():
	}
	return a.storages(c).redraw(ctx, interval, w.picture)
}

// watcher keeps the last status of each node.
type watcher struct {
	mu       sync.Mutex
	views    []storageNode
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

func (w *watcher) picture() []storageNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.views)
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

func (p page) storage(v storageNode) {
	if !v.answered(p) {
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
	sayf(p.w, "%s  %s/%d  %s%s  (cluster %s, %s)\n", v.addr, s.GetBrokerName(), s.GetNodeId(),
		client.RoleName(s.GetRole()), state, s.GetCluster(), p.build(s.GetVersion(), s.GetStartedAt()))
	u := s.GetUpstream()
	linked := u.GetAddress() != ""
	switch r := s.GetReason(); {
	case r == reasonSlave && !linked && u.GetReason() != "": // it has found nobody yet
		p.reason(u.GetReason(), u.GetRemedy())
	case r == "", r == reasonSlave, linked && r == u.GetReason(): // that a slave takes no puts is no news
	default:
		p.reason(r, s.GetRemedy())
	}
	p.log(s)
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

// log is how far each watermark is.
func (p page) log(s *client.NodeStatus) {
	m := s.GetWatermarks()
	acked := "-"
	if s.GetRole() != storagev1.Role_ROLE_SLAVE {
		acked = itoa(m.GetAckedOffset())
	}
	p.rows([]string{"FIRST", "WRITTEN", "FLUSHED", "READABLE", "DISPATCHED", "ACKED", "EPOCH", "DISK FREE"}, []string{
		itoa(m.GetFirstOffset()), itoa(m.GetWrittenOffset()), itoa(m.GetFlushedOffset()), itoa(m.GetReadableOffset()),
		itoa(m.GetDispatchedOffset()), acked, epochText(s), sizeText(s.GetDiskFree()),
	})
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
	if len(s.GetSlaves()) == 0 {
		say(p.w, "  no slaves")
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
	p.rows([]string{"SLAVE", "ADDRESS", "STATE", "IN SYNC", "ACKED", "LAG", "LAG TIME", "LAST REPORT"}, rows...)
	if s.GetRole() != storagev1.Role_ROLE_SLAVE { // who feeds slaves counts none of them for puts
		sayf(p.w, "  in sync %d, required %d\n", s.GetInSyncSlaves(), s.GetRequiredAcks())
	}
	for _, l := range s.GetSlaves() {
		if l.GetReason() != "" {
			p.reason(fmt.Sprintf("slave %d: %s", l.GetNodeId(), l.GetReason()), l.GetRemedy())
		}
	}
}

// linkName writes a link's state as words.
func linkName(l storagev1.LinkState) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(l.String(), "LINK_STATE_"), "_", " "))
}
