package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestPromote(t *testing.T) {
	master := clienttest.Start(t, clienttest.Options{})
	s := clienttest.Start(t, clienttest.Options{Slave: true})
	s.SetMaster(false, master.Addr())
	forced := false
	s.OnPromote(func(force bool) (*storagev1.PromoteResponse, error) {
		forced = force
		return &storagev1.PromoteResponse{Epoch: 4, StartOffset: 700, Role: storagev1.Role_ROLE_SYNC_MASTER, Planned: !force}, nil
	})
	about := `ADDR (broker-a/1, SLAVE) has the log up to 0.
It follows ADDR2: unspecified, 0 B behind.
`
	ctl(t, "", "y\n", "promote", s.Addr()).want(t, exitOK,
		"ADDR is the open master (SYNC_MASTER), epoch 4 from offset 700; the old master has handed over and follows it\n",
		about+"Make it the open master? [y/N] ", s.Addr(), master.Addr())
	ctl(t, "", "yes\n", "promote", s.Addr(), "--force").want(t, exitOK,
		"ADDR is the open master (SYNC_MASTER), epoch 4 from offset 700; no open master had to hand over\n",
		about+`By force it opens with this log and with whoever answers: what only other nodes have is cut from them,
and messages that were answered PUT_OK can be lost. Force it? [y/N] `, s.Addr(), master.Addr())
	if !forced {
		t.Error("--force did not arrive")
	}
	for _, answer := range []string{"", "n\n", "\n", "ye\n"} {
		before := s.Calls("Promote")
		r := ctl(t, "", answer, "promote", s.Addr())
		if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, "nothing was done; --yes answers yes") || s.Calls("Promote") != before {
			t.Errorf("answer %q: %+v", answer, r)
		}
	}
	ctl(t, "", "", "promote", s.Addr(), "-y", "-o", "json").want(t, exitOK,
		`{"epoch":"4","startOffset":"700","role":"ROLE_SYNC_MASTER","alreadyOpen":false,"planned":true}`+"\n", "")
	ctl(t, "", "", "promote", master.Addr()).want(t, exitOK, "ADDR is the open master already, epoch 1 from offset 0\n", "", master.Addr())
	for _, args := range [][]string{{"promote"}, {"promote", "a:1", "b:2"}, {"demote"}, {"rollback", "show", "a:1"}, {"rollback", "replay"}} {
		if r := ctl(t, "", "", args...); r.code != exitUsage || r.err == "" {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

func TestPromoteFails(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{Slave: true})
	for reason, want := range map[string]string{
		"NOT_PROMOTED":       "`tandemctl promote --help` says what --force means",
		"PROMOTION_HALF_WAY": "`tandemctl demote NODE` gives it up",
	} {
		s.OnPromote(func(bool) (*storagev1.PromoteResponse, error) {
			return nil, errdefs.New(errdefs.FailedPrecondition, reason, "no").With("reason", "NOT_BEST_RANKED").WithRemedy("promote node 2")
		})
		r := ctl(t, "", "", "promote", s.Addr(), "--yes")
		if r.code != exitFailed || !strings.Contains(r.err, "NOT_BEST_RANKED") || !strings.Contains(r.err, "  -> promote node 2\n") || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", reason, r)
		}
	}
}

func TestDemote(t *testing.T) {
	s := clienttest.Start(t, clienttest.Options{})
	if r := ctl(t, "", "no\n", "demote", s.Addr()); r.code != exitFailed || s.Calls("Demote") != 0 {
		t.Errorf("%+v", r)
	}
	ctl(t, "", "y\n", "demote", s.Addr()).want(t, exitOK,
		"ADDR is a slave now, its log ends at 0; `tandemctl promote NODE` makes a node master\n",
		"ADDR (broker-a/0, SYNC_MASTER) will take no more puts, and no node takes over by itself. Demote it? [y/N] ", s.Addr())
	ctl(t, "", "", "demote", s.Addr()).want(t, exitOK, "ADDR is a slave already, its log ends at 0\n", "", s.Addr())
}

// keptBy gives s a kept range of messages with the given bodies; each has its body as key.
func keptBy(s *clienttest.Storage, name string, bodies ...string) {
	var ms []*client.StoredMessage
	at := int64(1000)
	for i, b := range bodies {
		queue := int32(i % 2)
		ms = append(ms, &client.StoredMessage{Offset: at, Size: int32(len(b)), StoreTimestamp: 1_700_000_000_000, QueueOffset: int64(i), Message: &client.Message{ //nolint:gosec // small
			Topic: "t", QueueId: &queue, Body: []byte(b), Tag: "x", BornTimestamp: 5, Flag: 7,
			Properties: map[string]string{"UNIQ_KEY": b, "TAGS": "x", "a": "b"},
		}})
		at += int64(len(b))
	}
	s.Keep(&client.Rollback{FromOffset: 990, ToOffset: at, Epoch: 3, Size: at - 990, Name: name, Whole: true},
		[]*client.RollbackGap{{FromOffset: 990, ToOffset: 1000, Reason: "no record begins here"}}, ms...)
}

func TestRollbackListAndShow(t *testing.T) {
	a, b := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true})
	ctl(t, a.Addr()+","+b.Addr(), "", "rollback", "list").want(t, exitOK, "", "nothing is kept: no log was cut\n")
	keptBy(b, "990-1006-3", "one", "two")
	r := ctl(t, a.Addr()+","+b.Addr(), "", "rollback", "list")
	if got := alignAddresses(r.out, b.Addr()); r.code != exitOK || got != "ADDRESS NAME FROM TO CUT BY EPOCH SIZE WHOLE\nADDR 990-1006-3 990 1006 3 16 B yes\n" {
		t.Errorf("%+v", r)
	}
	ctl(t, b.Addr(), "", "rollback", "list", "-o", "json").want(t, exitOK,
		`{"address":"ADDR","name":"990-1006-3","fromOffset":"990","toOffset":"1006","epoch":"3","size":"16","whole":true}`+"\n", "", b.Addr())
	r = ctl(t, "", "", "rollback", "show", b.Addr(), "990-1006-3")
	if r.code != exitOK || strings.Count(r.out, "\n") != 3 || !strings.Contains(r.out, "one") || !strings.Contains(r.out, "1003") ||
		r.err != "left out: 990 to 1000, no record begins here\n" {
		t.Errorf("%+v", r)
	}
	ctl(t, "", "", "rollback", "show", b.Addr(), "990-1006-3", "--raw").want(t, exitOK, "onetwo", "")
	file := filepath.Join(t.TempDir(), "kept")
	ctl(t, "", "", "rollback", "show", b.Addr(), "990-1006-3", "--raw", "-f", file).want(t, exitOK, "", "6 B written to "+file+"\n")
	if got, err := os.ReadFile(file); err != nil || string(got) != "onetwo" {
		t.Errorf("%q, %v", got, err)
	}
	if r := ctl(t, "", "", "rollback", "show", b.Addr(), "990-1006-3", "--raw", "-f", file); r.code != exitUsage {
		t.Errorf("wrote over a file: %+v", r)
	}
	if r := ctl(t, "", "", "rollback", "show", b.Addr(), "1-2-3"); r.code != exitFailed || !strings.Contains(r.err, "tandemctl rollback list --addr NODE") {
		t.Errorf("%+v", r)
	}
}

func TestRollbackReplay(t *testing.T) {
	master, s := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true})
	s.SetMaster(false, master.Addr())
	keptBy(s, "990-1014-3", "one", "two", "three", "four")
	// The producer has put "three" again in another queue, behind the cut; an older message is not looked at.
	master.SetLog(0, make([]byte, 2000))
	ctl(t, master.Addr(), "", "put", "--topic", "t", "--queue", "5", "--property", "UNIQ_KEY=three", "three").want(t, exitOK, `STATUS               OFFSET        SIZE     QUEUE  QUEUE OFFSET  SLAVES  MESSAGE ID
PUT_OK               2000          5        5      0             0       three
`, "")
	gap := "left out: 990 to 1000, no record begins here\n"
	ctl(t, "", "", "rollback", "replay", s.Addr(), "990-1014-3", "--dry-run").want(t, exitOK,
		"4 messages kept, 1 in the log of the master ADDR already, 3 would be put\n", gap, master.Addr())
	question := gap + "4 messages kept, 1 of them are in the log of the master ADDR already. Put 3 messages again? [y/N] "
	if r := ctl(t, "", "n\n", "rollback", "replay", s.Addr(), "990-1014-3"); r.code != exitFailed || len(master.Stored("t", 0)) != 0 {
		t.Errorf("%+v", r)
	}
	// The second one fails, then it is repeated.
	master.OnPut(func(m *storagev1.Message) (storagev1.PutStatus, error) {
		if string(m.GetBody()) == "two" {
			return storagev1.PutStatus_PUT_STATUS_DISK_FULL, nil
		}
		return 0, nil
	})
	r := ctl(t, "", "y\n", "rollback", "replay", s.Addr(), "990-1014-3")
	if r.code != exitFailed || !strings.Contains(r.out, "1 put again") || !strings.Contains(r.err, "DISK_FULL") || !strings.Contains(r.err, "replay again") {
		t.Errorf("%+v", r)
	}
	master.OnPut(nil)
	ctl(t, "", "y\n", "rollback", "replay", s.Addr(), "990-1014-3").want(t, exitOK,
		"4 messages kept, 2 in the log of the master ADDR already, 2 put again\n", strings.NewReplacer("1 of them", "2 of them", "Put 3", "Put 2").Replace(question), master.Addr())
	for queue, want := range map[int32][]string{0: {"one"}, 1: {"two", "four"}} {
		got := master.Stored("t", queue)
		if len(got) != len(want) {
			t.Fatalf("queue %d: %v", queue, got)
		}
		for i, m := range got {
			msg := m.GetMessage()
			if string(msg.GetBody()) != want[i] || msg.GetFlag() != 7 || msg.GetBornTimestamp() != 5 || msg.GetProperties()["a"] != "b" ||
				msg.GetProperties()["TAGS"] != "x" || msg.GetProperties()["UNIQ_KEY"] != want[i] ||
				!strings.HasPrefix(msg.GetProperties()["ROLLBACK_ORIGIN"], "broker-a/1/rollback/990-1014-3@10") {
				t.Errorf("queue %d: %v", queue, msg)
			}
		}
	}
	ctl(t, "", "", "rollback", "replay", s.Addr(), "990-1014-3", "-o", "json").want(t, exitOK,
		`{"master":"ADDR","kept":4,"present":4,"put":0,"notOk":0,"refused":[],"dryRun":false}`+"\n", gap, master.Addr())
}

func TestRollbackReplayOfWhatIsRefused(t *testing.T) {
	master, s := clienttest.Start(t, clienttest.Options{}), clienttest.Start(t, clienttest.Options{Slave: true})
	s.SetMaster(false, master.Addr())
	keptBy(s, "990-1010-3", "delayed", "plain")
	master.OnPut(func(m *storagev1.Message) (storagev1.PutStatus, error) {
		if string(m.GetBody()) == "delayed" {
			return 0, errdefs.New(errdefs.Unimplemented, "NOT_BUILT", "delayed messages are not served")
		}
		return storagev1.PutStatus_PUT_STATUS_FLUSH_SLAVE_TIMEOUT, nil
	})
	r := ctl(t, "", "", "rollback", "replay", s.Addr(), "990-1010-3", "--yes")
	if r.code != exitFailed || !strings.Contains(r.out, "1 put again") || !strings.Contains(r.err, "cannot be put again: message at 1000: ") ||
		!strings.Contains(r.err, "1 message stored, but not PUT_OK") {
		t.Errorf("%+v", r)
	}
	master.SetLog(0, make([]byte, 2000))
	// Beyond --look nothing is compared.
	for i := range 5 {
		ctl(t, master.Addr(), "", "put", "-q", "--topic", "t", "--queue", "1", fmt.Sprint(i))
	}
	if r := ctl(t, "", "", "rollback", "replay", s.Addr(), "990-1010-3", "--dry-run", "--look", "2"); !strings.Contains(r.err, "more than 2 messages behind the cut") {
		t.Errorf("%+v", r)
	}
}
