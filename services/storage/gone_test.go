package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

// TestTheMastersDiskIsGone: the master is killed under load and its folder removed. The slave with the best log is promoted by the
// rules, without force; the old master comes back empty, still called a master by its config, and follows. No PUT_OK is lost.
func TestTheMastersDiskIsGone(t *testing.T) {
	t.Parallel()
	for _, slaves := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d slaves", slaves), func(t *testing.T) {
			t.Parallel()
			g := group(t, syncMaster, slaves, func(c *Config) { c.HA.RefuseWithoutReplicas = true })
			for _, n := range g {
				n.spawn()
			}
			g[0].awaitOpen().awaitSlaves(int32(slaves)) //nolint:gosec // a handful
			l := putting(t, g)
			l.more(100)
			g[0].kill()
			if err := os.RemoveAll(g[0].cfg.StorePathRootDir); err != nil {
				t.Fatal(err)
			}
			best := g[1]
			for _, n := range g[1:] {
				n.await("the end of the link", func(st *storagev1.StatusResponse) bool {
					return st.GetUpstream().GetState() != storagev1.LinkState_LINK_STATE_IN_SYNC
				})
				if n.end64() > best.end64() {
					best = n
				}
			}
			p, err := best.promote(false)
			if err != nil || p.GetRole() != storagev1.Role_ROLE_SYNC_MASTER || p.GetPlanned() {
				t.Fatalf("promote node %d: %v, %v", best.cfg.BrokerID, p, err)
			}
			if slaves > 1 { // with one, nobody is there to confirm a put
				best.awaitSlaves(1)
				l.more(50)
			}
			g[0].spawn()
			best.awaitSlaves(int32(slaves)) //nolint:gosec // a handful
			if st := g[0].status(); st.GetOpen() || st.GetRole() != storagev1.Role_ROLE_SLAVE {
				t.Errorf("the old master came back as %v, open: %t", st.GetRole(), st.GetOpen())
			}
			l.more(50)
			l.stop()
			l.allOn(g)
			for _, n := range g {
				if kept := n.kept(); len(kept) > 0 {
					t.Errorf("node %d had to cut %v", n.cfg.BrokerID, kept)
				}
			}
			var others []*node
			for _, n := range g {
				if n != best {
					others = append(others, n)
				}
			}
			same(t, best, others...)
		})
	}
}

// putter puts with a client that finds the master by itself, until it is stopped.
type putter struct {
	t    *testing.T
	ok   map[string]int64 // body of a PUT_OK, its offset
	n    atomic.Int64
	stop func()
}

const goneTopic = "TopicGone"

func putting(t *testing.T, g []*node) *putter {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Addresses: g[0].cfg.HA.Peers})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := &putter{t: t, ok: map[string]int64{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			p := c.Producer(client.ProducerOptions{RetryFor: -1})
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf("%d-%d", w, i)
				r, err := p.Put(ctx, &client.Message{Topic: goneTopic, Body: []byte(body)})
				if err == nil && r.GetStatus() == client.StatusOK {
					mu.Lock()
					l.ok[body] = r.GetOffset()
					mu.Unlock()
					l.n.Add(1)
				}
			}
		})
	}
	l.stop = sync.OnceFunc(func() { cancel(); wg.Wait(); c.Close() })
	t.Cleanup(l.stop)
	return l
}

// more waits until that many more puts were PUT_OK.
func (l *putter) more(n int64) {
	l.t.Helper()
	from := l.n.Load()
	eventually(l.t, fmt.Sprintf("%d more puts that are PUT_OK", n), func() bool { return l.n.Load() >= from+n })
}

// allOn holds that every PUT_OK stands on each node, once, at its offset.
func (l *putter) allOn(g []*node) {
	l.t.Helper()
	end := int64(0)
	for _, n := range g {
		end = max(end, n.end64())
	}
	for _, n := range g {
		n.awaitEnd(end)
		seen := n.bodies(goneTopic)
		for body, offset := range l.ok {
			if at := seen[body]; len(at) != 1 || at[0] != offset {
				l.t.Errorf("node %d: %q was PUT_OK at %d and is at %v", n.cfg.BrokerID, body, offset, at)
			}
		}
	}
}
