package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// knownPlaces are the places of a Status.
func knownPlaces(d *storagev1.KnownDamage) []string {
	var out []string
	for _, p := range d.GetPlaces() {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d..%d %s %s", p.GetFromOffset(), p.GetToOffset(), p.GetFoundBy(), p.GetUnit())))
	}
	return out
}

// Status shows the damage that a node serves around: what its recovery has met, until a scrub finds it gone.
func TestStatusShowsWhatARecoveryMet(t *testing.T) {
	t.Parallel()
	n := alone(t).spawn().awaitOpen()
	all := n.putSome(40)
	n.awaitEnd(n.end64())
	if d := n.status().GetDamage(); d != nil {
		t.Fatalf("a sound node shows %v", d)
	}
	n.kill()
	bad := all[30] // of the last file: the start reads it through
	n.flipLog(bad.GetOffset() + 200)
	n.start().awaitOpen()
	want := fmt.Sprintf("%d..%d recovery", bad.GetOffset(), bad.GetOffset()+int64(bad.GetSize()))
	if d := n.status().GetDamage(); d.GetRecords() != 1 || d.GetUnits() != 0 || strings.Join(knownPlaces(d), "; ") != want {
		t.Errorf("after the start: %v, want %s", d, want)
	}
	if m := n.metrics(); !strings.Contains(m, `storage_damage_known{kind="record"`) {
		t.Error("no metric of it")
	}
	n.flipLog(bad.GetOffset() + 200) // somebody has mended the disk
	if _, _, err := n.scrub(&storagev1.ScrubRequest{}); err != nil {
		t.Fatal(err)
	}
	if d := n.status().GetDamage(); d.GetRecords() != 0 || d.GetUnits() != 1 { // the queue has a blank unit for it
		t.Errorf("after a scrub that found the record sound: %v", d)
	}
}

// What a scrub has found is in Status, and a repair takes it away.
func TestStatusShowsWhatAScrubFound(t *testing.T) {
	t.Parallel()
	nodes := group(t, asyncMaster, 1)
	master, sick := nodes[0], nodes[1]
	master.start()
	sick.start()
	master.awaitOpen()
	all := master.putSome(400)
	for _, n := range nodes {
		n.awaitEnd(master.end64())
	}
	sick.rot(all)
	if _, _, err := sick.scrub(&storagev1.ScrubRequest{}); err != nil {
		t.Fatal(err)
	}
	d := sick.status().GetDamage()
	found := strings.Join(knownPlaces(d), "; ")
	if d.GetRecords() != 3 || d.GetUnits() != 1 || len(d.GetPlaces()) != 4 || !strings.Contains(found, "scrub TopicTest/") {
		t.Errorf("after the scrub: %v", d)
	}
	if _, sum, err := sick.repair(&storagev1.RepairRequest{Source: master.cfg.Listen}); err != nil || sum.GetLeft() != 0 {
		t.Fatalf("repair: %v %v", sum, err)
	}
	if d := sick.status().GetDamage(); d != nil {
		t.Errorf("after the repair: %v", d)
	}
	same(t, master, sick)
}

// What only the dispatcher meets, as it builds the queues anew, is in Status too.
func TestStatusShowsWhatTheDispatcherMet(t *testing.T) {
	t.Parallel()
	n := alone(t).start().awaitOpen()
	all := n.putSome(400)
	n.awaitEnd(n.end64())
	n.halt()
	bad := all[20] // a clean start does not read it
	n.flipLog(bad.GetOffset() + 200)
	for _, dir := range []string{"consumequeue", "tandem/queues"} {
		if err := os.RemoveAll(filepath.Join(n.cfg.StorePathRootDir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	n.start()
	n.awaitEnd(n.end64())
	want := fmt.Sprintf("%d..%d dispatch", bad.GetOffset(), bad.GetOffset()+int64(bad.GetSize()))
	if d := n.status().GetDamage(); d.GetRecords() != 1 || d.GetUnits() != 0 || strings.Join(knownPlaces(d), "; ") != want {
		t.Errorf("after the start: %v, want %s", d, want)
	}
}
