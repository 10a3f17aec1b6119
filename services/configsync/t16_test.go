package main

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// damages are what can become of a file.
var damages = map[string]func(t *testing.T, name string){ //nolint:gochecknoglobals // a table
	"empty":   func(t *testing.T, name string) { write(t, name, "") },
	"half":    func(t *testing.T, name string) { b, _ := os.ReadFile(name); write(t, name, string(b[:len(b)/2])) },
	"garbage": func(t *testing.T, name string) { write(t, name, "\x00\x17 not json at all") },
	"missing": func(t *testing.T, name string) { remove(t, name) },
	"unreadable": func(t *testing.T, name string) {
		remove(t, name)
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	},
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func (n *node) file(name string) string {
	return filepath.Join(n.cfg.StorePathRootDir, configDir, name)
}

// filled makes a master with something in each table, all of it in the files and their backups, and stops it.
func filled(t *testing.T) (*node, map[string]string) {
	t.Helper()
	m := newNode(t, 0, asyncMaster, func(c *Config) { c.FlushConsumerOffsetInterval = 10 * time.Millisecond })
	m.start().awaitOpen()
	for i := range 2 { // each file is written twice: then it has a backup
		m.create(fmt.Sprintf("Topic%d", i))
		m.createGroups(fmt.Sprintf("Group%d", i))
		m.commit("Topic0", "Group0", int64(10+i))
		_, err := m.offsets().CommitDelay(t.Context(), &configsyncv1.CommitDelayRequest{Offsets: []*configsyncv1.DelayOffset{{Level: 1, Offset: int64(i + 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		m.await("files", func(st *configsyncv1.StatusResponse) bool {
			return !slices.ContainsFunc(entry.Kinds(), func(k entry.Kind) bool {
				state := m.app.registry.State(k)
				return state.SavedVersion != state.Version || st.GetUnsavedCommits() > 0
			})
		})
	}
	content := m.content()
	m.halt()
	return m, content
}

// TestT16_ABrokenFile: the backup, and the journal behind it, have all that the file had.
func TestT16_ABrokenFile(t *testing.T) {
	t.Parallel()
	for what, damage := range damages {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m, before := filled(t)
			for _, k := range entry.Kinds() {
				damage(t, m.file(k.File()))
			}
			m.start().awaitOpen()
			if after := m.content(); !maps.Equal(after, before) {
				t.Errorf("before %v, after %v", before, after)
			}
			if !strings.Contains(m.log.String(), "backup") {
				t.Error("no warning")
			}
		})
	}
}

// TestT16_BothBroken: it refuses to lead and says so, offline too, until a peer has the table or an operator brings it.
func TestT16_BothBroken(t *testing.T) {
	t.Parallel()
	m, before := filled(t)
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(m.cfg.StorePathRootDir)); err != nil {
		t.Fatal(err)
	}
	ruin := func(damage func(*testing.T, string)) {
		remove(t, m.cfg.StorePathRootDir)
		if err := os.CopyFS(m.cfg.StorePathRootDir, os.DirFS(copied)); err != nil {
			t.Fatal(err)
		}
		for _, k := range entry.Kinds() {
			damage(t, m.file(k.File()))
			damage(t, m.file(k.File()+".bak"))
		}
		remove(t, m.file("tandem"))
	}
	for what, damage := range damages {
		if what == "missing" {
			continue // both files gone, as the journal is, is a fresh folder
		}
		ruin(damage)
		var out bytes.Buffer
		if err := runCheck(vfs.OS(), m.cfg.StorePathRootDir, nil, &out); err == nil || strings.Count(out.String(), "BROKEN") != 4 {
			t.Errorf("%s: check says %v: %s", what, err, out.String())
		}
		m.cfg.Peers, m.cfg.Epoch = nil, 1
		m.start()
		st := m.await("its refusal", func(st *configsyncv1.StatusResponse) bool { return st.GetReason() == "TABLE_BROKEN" })
		if st.GetOpen() || st.GetRemedy() == "" || st.GetKinds()[0].GetState() != configsyncv1.SyncState_SYNC_STATE_BROKEN {
			t.Errorf("%s: %v", what, st)
		}
		if _, err := m.tryCommit("Topic0", "Group0", 1); err == nil {
			t.Errorf("%s: it took a commit", what)
		}
		m.halt()
	}

	// A peer has them.
	s := newNode(t, 1, slave)
	if err := os.CopyFS(s.cfg.StorePathRootDir, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	know([]*node{m, s})
	s.start()
	m.start().awaitOpen()
	if after := m.content(); !maps.Equal(after, before) {
		t.Errorf("from the peer came %v, not %v", after, before)
	}
	m.halt()
	s.halt()

	// An operator brings one.
	ruin(damages["garbage"])
	m.cfg.Peers = nil
	m.start()
	m.await("its refusal", func(st *configsyncv1.StatusResponse) bool { return st.GetReason() == "TABLE_BROKEN" })
	if _, err := m.importText(configsyncv1.Kind_KIND_TOPICS, merge, before["topics.json"]); err == nil {
		t.Error("a merge into a broken table was taken")
	}
	for _, k := range entry.Kinds() {
		if _, err := m.importText(configsyncv1.Kind(k), configsyncv1.ImportMode_IMPORT_MODE_REPLACE, before[k.File()]); err != nil {
			t.Errorf("import %v: %v", k, err)
		}
	}
	m.awaitOpen()
	if after := m.content(); !maps.Equal(after, before) {
		t.Errorf("after the import: %v, not %v", after, before)
	}
}

// TestT16_Kills: what was answered is there after kill -9 at any moment, whole.
func TestT16_Kills(t *testing.T) {
	t.Parallel()
	m := newNode(t, 0, asyncMaster, func(c *Config) { c.FlushConsumerOffsetInterval = 20 * time.Millisecond })
	made := map[string]bool{}
	rnd := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // reproducible
	durable := int64(-1)
	for round := range scaled(4, 200) {
		m.spawn().awaitOpen()
		got := m.names()
		for name := range made {
			if !slices.Contains(got, name) {
				t.Fatalf("round %d: %s was answered and is gone", round, name)
			}
		}
		if have := m.offset("TopicX", "GroupX"); have < durable {
			t.Fatalf("round %d: the durable commit of %d is gone, %d is left", round, durable, have)
		}
		changes := 1 + rnd.IntN(30)
		for i := range changes {
			name := fmt.Sprintf("Topic%d_%d", round, i)
			m.create(name)
			made[name] = true
			if i%3 == 2 {
				if _, err := m.topics().DeleteTopic(t.Context(), &configsyncv1.DeleteTopicRequest{Name: name}); err != nil {
					t.Fatal(err)
				}
				delete(made, name)
			}
			durable++
			_, err := m.offsets().Commit(t.Context(), &configsyncv1.CommitRequest{
				Offset: &configsyncv1.ConsumerOffset{Topic: "TopicX", Group: "GroupX", Offset: durable}, Durable: true,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		m.kill()
	}
}

// TestWhatACrashMayLose: commits that were not asked to be durable and are not saved yet, and nothing else. They are saved within
// flushConsumerOffsetInterval, 5 s at most, and at a stop.
func TestWhatACrashMayLose(t *testing.T) {
	t.Parallel()
	m := newNode(t, 0, asyncMaster)
	m.spawn().awaitOpen()
	m.commit(topicA, groupA, 100)
	began := time.Now()
	m.await("saving", func(st *configsyncv1.StatusResponse) bool { return st.GetUnsavedCommits() == 0 })
	t.Logf("saved after %v", time.Since(began))
	m.commit(topicA, "GroupLost", 1)
	m.kill()
	m.spawn().awaitOpen()
	if got := m.offset(topicA, groupA); got != 100 {
		t.Errorf("a saved commit of 100 is %d after a crash", got)
	}
	if got := m.offset(topicA, "GroupLost"); got != -1 && got != 1 {
		t.Errorf("an unsaved commit of 1 is %d after a crash", got)
	}
	m.commit(topicA, groupA, 200)
	m.halt() // SIGTERM
	m.spawn().awaitOpen()
	if got := m.offset(topicA, groupA); got != 200 {
		t.Errorf("a commit of 200 is %d after a stop", got)
	}
}
