package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestABlackHole: a link that goes silent without an end is noticed within the housekeeping interval by both sides; puts
// then answer at once that no slave is there; when the network heals the slave catches up.
func TestABlackHole(t *testing.T) {
	t.Parallel()
	interval := scaled(time.Second, 20*time.Second)
	g := group(t, syncMaster, 1, func(c *Config) {
		c.HAHousekeepingInterval, c.HASendHeartbeatInterval, c.SlaveTimeout = interval, interval/5, 5*time.Minute
	})
	master, s := g[0], g[1]
	link := behind(master)
	master.start()
	s.start()
	master.awaitOpen().awaitSlaves(1)
	master.fill(50)
	link.Stall(testkit.Up)
	link.Stall(testkit.Down)
	began := time.Now()
	patience := max(testkit.Patience, 4*interval)
	master.awaitLong(patience, "the end of the slave", func(st *storagev1.StatusResponse) bool { return st.GetInSyncSlaves() == 0 })
	s.awaitLong(patience, "the end of the link", func(st *storagev1.StatusResponse) bool { return st.GetUpstream().GetReason() != "" })
	if took := time.Since(began); took > 3*interval {
		t.Errorf("it took %v to notice", took)
	}
	if r := master.put([]byte("nobody there")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_SLAVE_NOT_AVAILABLE {
		t.Errorf("put: %v", r)
	}
	sl := master.status().GetSlaves()
	if len(sl) != 1 || sl[0].GetInSync() || sl[0].GetLagBytes() == 0 {
		t.Errorf("the slave's status is %v", sl)
	}
	master.fill(50)
	link.Resume(testkit.Up)
	link.Resume(testkit.Down)
	link.CutAll()
	master.awaitSlaves(1)
	if r := master.put([]byte("there again")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
		t.Errorf("put: %v", r)
	}
	same(t, master, s)
}

// TestOneMasterInAGroup: of two nodes that are both configured as master one opens; the other becomes its slave, and the
// client finds the master by itself.
func TestOneMasterInAGroup(t *testing.T) {
	t.Parallel()
	for _, role := range []string{syncMaster, asyncMaster} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			g := group(t, role, 2)
			g[1].cfg.BrokerRole = role
			for _, n := range g {
				n.start()
			}
			var open *node
			var others []*node
			eventually(t, "one open master with two slaves", func() bool {
				open, others = nil, nil
				count := 0
				for _, n := range g {
					st := n.status()
					if st.GetOpen() && st.GetInSyncSlaves() == 2 {
						open = n
						count++
					} else {
						others = append(others, n)
					}
				}
				return count == 1
			})
			for _, n := range others {
				if st := n.status(); st.GetOpen() || st.GetRole() != storagev1.Role_ROLE_SLAVE {
					t.Errorf("node %d is %v, open: %t", n.cfg.BrokerID, st.GetRole(), st.GetOpen())
				}
			}
			c, err := client.Dial(t.Context(), client.Options{Addresses: []string{others[0].cfg.Listen, others[1].cfg.Listen}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i := range 20 {
				r, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), &client.Message{Topic: "TopicTest", Body: fmt.Appendf(nil, "%d", i)})
				if err != nil || r.GetStatus() != client.StatusOK {
					t.Errorf("put %d: %v, %v", i, r, err)
				}
			}
			same(t, open, others...)
		})
	}
}

// TestACancelledPutIsReplicated: who gives up waiting for a put stops nothing.
func TestACancelledPutIsReplicated(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1, patient)
	link := behind(g[0])
	g[0].start()
	g[1].start()
	g[0].awaitOpen().awaitSlaves(1)
	link.Stall(testkit.Up)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g[0].message().Put(ctx, &storagev1.PutRequest{Message: &storagev1.Message{Topic: "TopicTest", Body: []byte("given up")}})
		done <- err
	}()
	g[0].await("the append", func(st *storagev1.StatusResponse) bool { return st.GetWatermarks().GetWrittenOffset() > 0 })
	cancel()
	if err := <-done; err == nil {
		t.Error("a put that was given up has a result")
	}
	g[1].await("the message", func(st *storagev1.StatusResponse) bool { return st.GetWatermarks().GetWrittenOffset() > 0 })
	link.Resume(testkit.Up)
	same(t, g[0], g[1])
}
