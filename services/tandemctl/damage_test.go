package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

var (
	badRecord = &storagev1.Damage{
		Kind: storagev1.DamageKind_DAMAGE_KIND_RECORD, Offset: 4096, EndOffset: 4396, Field: "bodyCRC",
		Detail: "record at 4096: bodyCRC is 0x1, want 0x2",
	}
	badUnit = &storagev1.Damage{
		Kind: storagev1.DamageKind_DAMAGE_KIND_UNIT_WRONG, Offset: 9000, EndOffset: 9100, Field: "offset", Topic: "orders", QueueId: 3,
		QueueOffset: 17, Detail: "offset is 5, want 9000",
	}
)

func TestScrub(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	var asked *storagev1.ScrubRequest
	damages := []*storagev1.Damage{badRecord, badUnit}
	s.OnScrub(func(req *storagev1.ScrubRequest) (all []*storagev1.ScrubResponse, err error) {
		asked = req
		all = append(all, &storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Progress{Progress: &storagev1.ScrubProgress{ToOffset: 1 << 20}}})
		for _, d := range damages {
			all = append(all, &storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Damage{Damage: d}})
		}
		return append(all, &storagev1.ScrubResponse{News: &storagev1.ScrubResponse_Summary{Summary: &storagev1.ScrubSummary{
			ToOffset: 1 << 20, Records: 500, Units: 499, Damages: int64(len(damages)), Took: durationpb.New(1500 * time.Millisecond),
		}}}), nil
	})
	ctl(t, "", "", "scrub", s.Addr(), "--from", "10", "--to", "20", "--rate", "30").want(t, exitFailed,
		"damage  record at 4096 to 4396: bodyCRC is 0x1, want 0x2\n"+
			"damage  orders/3 unit 17, record at 9000: offset is 5, want 9000\n"+
			"DAMAGED: 1.0 MiB from 0 to 1048576: 500 records, 499 units compared, 2 damages (1.5s)\n",
		"  -> `tandemctl repair ADDR --from PEER` takes the bytes of another node\n", s.Addr())
	if asked.GetFromOffset() != 10 || asked.GetToOffset() != 20 || asked.GetBytesPerSecond() != 30 {
		t.Errorf("asked for %v", asked)
	}
	damages = nil
	ctl(t, "", "", "scrub", s.Addr()).want(t, exitOK, "SOUND: 1.0 MiB from 0 to 1048576: 500 records, 499 units compared, 0 damages (1.5s)\n", "")
	ctl(t, "", "", "scrub", s.Addr(), "-o", "json").want(t, exitOK,
		`{"fromOffset":"0","toOffset":"1048576","records":"500","units":"499","damages":"0","took":"1.500s"}`+"\n", "")
	s.OnScrub(func(*storagev1.ScrubRequest) ([]*storagev1.ScrubResponse, error) {
		return nil, errdefs.New(errdefs.Aborted, "LOG_CUT", "the log was cut while it was checked").WithRemedy("run it again")
	})
	ctl(t, "", "", "scrub", s.Addr()).want(t, exitFailed, "", "tandemctl: the log was cut while it was checked (address=ADDR)\n  -> run it again\n", s.Addr())
	for _, args := range [][]string{{"scrub"}, {"scrub", s.Addr(), "--from", "5", "--to", "5"}, {"scrub", s.Addr(), "--rate", "-1"}} {
		if r := ctl(t, "", "", args...); r.code != exitUsage || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestRepair(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	var asked *storagev1.RepairRequest
	ranges := []*storagev1.RepairedRange{
		{FromOffset: 4096, ToOffset: 4396, ChangedBytes: 1, Units: 1, Kept: []string{"4096-4396-0"}},
		{FromOffset: 9000, ToOffset: 9100, Reason: "the source has another history there", Remedy: "name another node"},
	}
	s.OnRepair(func(req *storagev1.RepairRequest) (all []*storagev1.RepairResponse, err error) {
		asked = req
		sum := &storagev1.RepairSummary{}
		for _, r := range ranges {
			all = append(all, &storagev1.RepairResponse{News: &storagev1.RepairResponse_Range{Range: r}})
			sum.ChangedBytes += r.GetChangedBytes()
			sum.Units += r.GetUnits()
			if r.GetReason() == "" {
				sum.Repaired++
			} else {
				sum.Left++
			}
		}
		return append(all, &storagev1.RepairResponse{News: &storagev1.RepairResponse_Summary{Summary: sum}}), nil
	})
	ctl(t, "", "", "repair", s.Addr(), "--from", "peer:1", "--range", "4000-9100").want(t, exitFailed,
		"repaired  4096 to 4396: 1 byte changed, 1 unit; what stood there is in repair/4096-4396-0\n"+
			"left  9000 to 9100: 0 bytes changed, 0 units: the source has another history there\n"+
			"NOT ALL: 1 repaired, 1 left; 1 byte changed, 1 unit\n",
		"  -> name another node\n")
	if asked.GetSource() != "peer:1" || asked.GetFromOffset() != 4000 || asked.GetToOffset() != 9100 || asked.GetDryRun() {
		t.Errorf("asked for %v", asked)
	}
	ranges = ranges[:1]
	ranges[0].Kept = nil
	ctl(t, "", "", "repair", s.Addr(), "--from", "peer:1", "--dry-run").want(t, exitOK,
		"would repair  4096 to 4396: 1 byte changed, 1 unit\nPOSSIBLE: 1 repaired, 0 left; 1 byte changed, 1 unit\n", "")
	ranges = nil
	ctl(t, "", "", "repair", s.Addr(), "--from", "peer:1").want(t, exitOK, "SOUND: nothing is damaged\n", "")
	ctl(t, "", "", "repair", s.Addr(), "--from", "peer:1", "-o", "json").want(t, exitOK,
		`{"repaired":"0","left":"0","changedBytes":"0","units":"0"}`+"\n", "")
	for _, args := range [][]string{{"--from", s.Addr()}, {"--range", "1-2"}, {"--from", "p:1", "--range", "5"}, {"--from", "p:1", "--range", "5-4"}, {"--from", "p:1", "--rate", "-1"}} {
		if r := ctl(t, "", "", append([]string{"repair", s.Addr()}, args...)...); r.code != exitUsage || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestRepairFromANodeThatIsAway(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	s.OnRepair(func(*storagev1.RepairRequest) ([]*storagev1.RepairResponse, error) {
		return nil, client.ErrUnreachable.WithMsg("%s", "cannot reach the server: connection refused").With("address", "10.0.0.9:10911")
	})
	r := ctl(t, "", "", "repair", s.Addr(), "--from", "10.0.0.9:10911")
	if r.code != exitFailed || !strings.Contains(r.err, s.Addr()+" cannot reach --from 10.0.0.9:10911: connection refused\n  -> start the node that --from names, or name another one\n") || strings.Contains(r.err, "--addr") {
		t.Errorf("%+v", r)
	}
	s.Stop()
	if r := ctl(t, "", "", "repair", s.Addr(), "--from", "10.0.0.9:10911"); r.code != exitFailed || strings.Contains(r.err, "--from") {
		t.Errorf("%+v", r)
	}
}
