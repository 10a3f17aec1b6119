package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// crowd lets m's disk take little more than it holds.
func (m *member) crowd() { m.fsys.SetQuota(m.fsys.Used() + 4096) }

var big = string(make([]byte, 30<<10))

// putUntilRefused appends big bodies on m until one is refused, and returns why.
func (m *member) putUntilRefused() error {
	m.c.t.Helper()
	for range 20 {
		if _, err := m.put(m.c.t.Context(), big); err != nil {
			return err
		}
	}
	m.c.t.Fatal("the disk never was full")
	return nil
}

func (m *member) status() node.Status {
	m.c.t.Helper()
	s, err := m.node.Status(m.c.t.Context())
	if err != nil {
		m.c.t.Fatal(err)
	}
	return s
}

// TestT12_DiskFull: a follower drops what it has no room for and votes on; a leader refuses, and hands over to the one member
// that has room, not to the other; with space all goes on by itself.
func TestT12_DiskFull(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		leader, follower := c.leader(), c.follower()
		follower.crowd()
		for range 5 {
			c.put(big)
		}
		if s := follower.status(); s.NoRoom == 0 || s.Leader != leader.id || !errors.Is(s.NoSpace, vfs.ErrNoSpace) {
			t.Errorf("%+v", s)
		}
		leader.crowd()
		wantErr(t, leader.putUntilRefused(), vfs.ErrNoSpace)
		for range 40 {
			if leader.node.Soft().Role != consensus.Leader {
				break
			}
			if _, err := leader.put(t.Context(), big); err == nil {
				t.Fatal("a full disk takes an entry")
			}
			pass(250 * time.Millisecond)
		}
		next := c.leader()
		if next == leader || next == follower {
			t.Fatalf("%s leads", next.id)
		}
		if s := leader.status(); s.HandedOver != 1 || s.NoSpace == nil || s.DiskFull != nil {
			t.Errorf("%+v", s)
		}
		leader.fsys.SetQuota(0) // a majority has room, the follower has none yet
		last := c.put(big)
		term := next.node.Soft().Term
		follower.fsys.SetQuota(0)
		last = max(last, c.put(big))
		c.settle(last)
		if got := c.leader(); got != next || got.node.Soft().Term != term {
			t.Errorf("%s leads term %d", got.id, got.node.Soft().Term)
		}
		for _, m := range c.all() {
			if s := m.status(); s.NoSpace != nil {
				t.Errorf("%s: %+v", m.id, s)
			}
		}
	})
}

// TestT12_AllDisksFull: once nobody has room, leadership stays where it is, however long appends are refused; the tries to
// hand over become rare.
func TestT12_AllDisksFull(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		for _, m := range c.all() {
			m.crowd()
		}
		refuse := func(d time.Duration) (busy, full int) {
			t.Helper()
			for range d / (250 * time.Millisecond) {
				_, err := c.leader().put(t.Context(), big)
				switch {
				case errors.Is(err, node.ErrTransferring):
					busy++
				case errors.Is(err, vfs.ErrNoSpace):
					full++
				case err != nil && !errors.Is(err, node.ErrNotLeader):
					t.Fatal(err)
				}
				pass(250 * time.Millisecond)
			}
			return busy, full
		}
		refuse(time.Minute) // files that were made before fill up, and whoever has such a one may lead
		leader := c.leader()
		before := leader.status()
		busy, full := refuse(10 * time.Minute)
		if s := leader.status(); s.Role != consensus.Leader || s.Term != before.Term || s.HandedOver != before.HandedOver || s.NoSpace == nil {
			t.Errorf("%+v became %+v", before, s)
		}
		if busy == 0 || busy > full/10 {
			t.Errorf("%d appends met a hand-over, %d did not", busy, full)
		}
		for _, m := range c.all() {
			m.fsys.SetQuota(0)
		}
		c.settle(c.put("y"))
		if s := leader.status(); s.Term != before.Term || s.NoSpace != nil {
			t.Errorf("%+v", s)
		}
	})
}

// TestReadsEnd: a node that cannot take the entries a read must see, or that has fallen silent, says so in time, also to a caller who
// would wait for ever.
func TestReadsEnd(t *testing.T) {
	bubble(t, 3, func(o *node.Options) { o.RetryFull = time.Minute }, func(t *testing.T, c *cluster) {
		c.settle(c.put("x"))
		follower := c.follower()
		read := func(why string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			_, err := follower.node.Read(ctx)
			if took := time.Since(began); !errors.Is(err, node.ErrReadLost) || took > 10*time.Second {
				t.Errorf("%s: %v after %v", why, err, took)
			}
		}
		follower.crowd()
		for range 5 {
			c.put(big)
		}
		read("behind")
		follower.fsys.SetQuota(1)
		leader := c.leader()
		c.isolate(leader.id, true) // there is a term to be saved
		pass(10 * time.Second)
		if follower.status().DiskFull == nil {
			t.Fatal("the node does not wait for space")
		}
		read("silent")
		follower.fsys.SetQuota(0)
		pass(2 * time.Minute)
		c.isolate(leader.id, false)
		c.settle(c.put("y"))
	})
}
