package main

import (
	"net"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// TestAnOutsiderConfirmsNothing: a slave that is not among ha.peers has what the master has, but nobody asks it when the next master
// is chosen. So no put is PUT_OK by it. A member that goes by another name there is known by its id.
func TestAnOutsiderConfirmsNothing(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	member := g[1]
	_, port, err := net.SplitHostPort(member.cfg.Listen)
	if err != nil {
		t.Fatal(err)
	}
	member.cfg.Advertise = net.JoinHostPort("localhost", port)
	member.cfg.HA.Peers = []string{g[0].cfg.Listen, member.cfg.Advertise}
	master := g[0].start()
	member.start()
	master.awaitOpen().awaitSlaves(1)
	if r := master.put([]byte("with the member")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
		t.Errorf("with the member: %v", r)
	}
	member.awaitEnd(master.end64())
	member.halt()

	outsider := follower(t, 2, master).start()
	outsider.awaitEnd(master.end64())
	r := master.put([]byte("with the outsider"))
	outsider.awaitEnd(master.end64())
	if s := r.GetStatus(); s != storagev1.PutStatus_PUT_STATUS_SLAVE_NOT_AVAILABLE || r.GetAckedSlaves() != 0 {
		t.Errorf("with the outsider: %v", r)
	}
	master.halt()
	member.start()
	if _, err := member.promote(false); err != nil { // two of two less `required`: it knows of nothing that is missing
		t.Error(err)
	}
}
