package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/clienttest/configtest"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// configCtl runs a command about config sync against all nodes of a group.
func configCtl(t *testing.T, g *configtest.Group, stdin string, args ...string) result {
	t.Helper()
	return ctl(t, "", stdin, append(args, "--addr", strings.Join(g.Addrs(), ","))...)
}

func TestTopic(t *testing.T) {
	g := configtest.Start(t, 2)
	g.Lead(1)
	configCtl(t, g, "", "topic", "list").want(t, exitOK, "", "no topics; `tandemctl topic create demo` makes one\n")
	configCtl(t, g, "", "topic", "create", "orders", "--queues", "8", "--perm", "r", "--attribute", "b=2", "--attribute", "a=1").want(t, exitOK,
		"TOPIC   READ QUEUES  WRITE QUEUES  PERM  FILTER       ORDER  ATTRIBUTES\norders  8            8             r     UNSPECIFIED  no     a=1 b=2\n", "")
	configCtl(t, g, "", "topic", "create", "orders").want(t, exitFailed, "",
		"tandemctl: there is one of that name (address=ADDR)\n  -> change it with `update`\n", g.Nodes[1].Addr())
	configCtl(t, g, "", "topic", "update", "orders", "--read-queues", "4", "--order", "--perm", "-", "--filter-type", "multi_tag").want(t, exitOK,
		"TOPIC   READ QUEUES  WRITE QUEUES  PERM  FILTER     ORDER  ATTRIBUTES\norders  4            8             -     MULTI_TAG  yes    a=1 b=2\n", "")
	if r := configCtl(t, g, "", "topic", "update", "orders", "--order=false", "-o", "json"); r.code != exitOK || !strings.Contains(r.out, `"readQueues":4,"writeQueues":8,"perm":0`) ||
		!strings.Contains(r.out, `"order":false`) {
		t.Errorf("%+v", r)
	}
	configCtl(t, g, "", "topic", "update", "new", "--create", "--sys-flag", "1").want(t, exitOK,
		"TOPIC  READ QUEUES  WRITE QUEUES  PERM  FILTER       ORDER  ATTRIBUTES\nnew    0            0             -     UNSPECIFIED  no     -\n", "")
	if r := configCtl(t, g, "", "topic", "update", "new", "--if-etag", "5", "--order"); r.code != exitFailed || !strings.Contains(r.err, "it was changed since") {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"a", "b", "c"} {
		configCtl(t, g, "", "topic", "create", name)
	}
	if r := configCtl(t, g, "", "topic", "list", "-o", "json"); r.code != exitOK || strings.Count(r.out, "\n") != 5 {
		t.Errorf("%+v", r)
	}
	if r := configCtl(t, g, "", "topic", "list", "--prefix", "o", "--local"); r.code != exitOK || strings.Count(r.out, "\n") != 2 {
		t.Errorf("%+v", r)
	}
	if r := configCtl(t, g, "", "topic", "get", "b", "-o", "json"); r.code != exitOK || !strings.HasPrefix(r.out, `{"name":"b","readQueues":16`) {
		t.Errorf("%+v", r)
	}
	configCtl(t, g, "n\n", "topic", "delete", "b").want(t, exitFailed, "",
		"b has 16 queues for writers, permission rw. Delete it? [y/N] tandemctl: not confirmed, nothing was done; --yes answers yes\n")
	configCtl(t, g, "y\n", "topic", "delete", "b").want(t, exitOK, "the topic b is deleted\n", "b has 16 queues for writers, permission rw. Delete it? [y/N] ")
	configCtl(t, g, "", "topic", "delete", "c", "--yes", "-o", "json").want(t, exitOK, `{"deleted":"c"}`+"\n", "")
	if r := configCtl(t, g, "", "topic", "get", "b"); r.code != exitFailed || !strings.Contains(r.err, "-> `list` shows what there is") {
		t.Errorf("%+v", r)
	}
	if r := ctl(t, "", "", "__complete", "topic", "--addr", g.Nodes[0].Addr(), "get", "o"); !strings.HasPrefix(r.out, "orders\n:4\n") {
		t.Errorf("completion: %+v", r)
	}
}

func TestGroup(t *testing.T) {
	g := configtest.Start(t, 1)
	configCtl(t, g, "", "group", "list").want(t, exitOK, "", "no groups; `tandemctl group create demo` makes one\n")
	const header = "GROUP    CONSUMES  BROADCAST  ORDERLY  RETRY QUEUES  RETRIES  TIMEOUT  BROKER  ATTRIBUTES\n"
	configCtl(t, g, "", "group", "create", "billing", "--retry-max-times", "5", "--orderly").want(t, exitOK,
		header+"billing  yes       no         yes      0             5        0m       0       -\n", "")
	configCtl(t, g, "", "group", "update", "billing", "--consume-enable=false", "--orderly=false", "--consume-timeout", "3", "--attribute", "a=b").want(t, exitOK,
		header+"billing  no        no         no       0             5        3m       0       a=b\n", "")
	configCtl(t, g, "", "group", "get", "billing").want(t, exitOK, header+"billing  no        no         no       0             5        3m       0       a=b\n", "")
	configCtl(t, g, "", "group", "update", "other", "--create", "--retry-queues", "2", "--from-min=false", "--broadcast", "--notify", "--broker-id", "1",
		"--slow-broker-id", "2", "--sys-flag", "1", "--retry-policy", "{}")
	if r := configCtl(t, g, "", "group", "list", "-o", "json"); r.code != exitOK || strings.Count(r.out, "\n") != 2 || !strings.Contains(r.out,
		`"consumeFromMinEnable":false,"consumeBroadcastEnable":true,"notifyConsumerIdsChangedEnable":true,"retryQueues":2,"brokerId":"1","whichBrokerWhenConsumeSlowly":"2"`) {
		t.Errorf("%+v", r)
	}
	if r := configCtl(t, g, "", "group", "delete", "billing"); r.code != exitFailed || !strings.Contains(r.err, "Delete the group billing? [y/N]") {
		t.Errorf("%+v", r)
	}
	configCtl(t, g, "", "group", "delete", "billing", "-y").want(t, exitOK, "the group billing is deleted\n", "")
	if r := ctl(t, "", "", "__complete", "offset", "list", "--addr", g.Nodes[0].Addr(), "--group", ""); !strings.HasPrefix(r.out, "other\n:4\n") {
		t.Errorf("completion: %+v", r)
	}
}

func TestOffset(t *testing.T) {
	g := configtest.Start(t, 2)
	configCtl(t, g, "", "offset", "list").want(t, exitOK, "", "no offsets there\n")
	g.SetEnd("orders", 0, 100)
	commit := []string{"offset", "commit", "--group", "billing", "--topic", "orders", "--queue"}
	configCtl(t, g, "", append(commit, "0", "--offset", "40", "--durable")...).want(t, exitOK, "orders@billing, queue 0 is at 40\n", "")
	configCtl(t, g, "", append(commit, "0", "--offset", "30")...).want(t, exitOK, "orders@billing, queue 0 stays at 40, which is higher\n",
		"  -> `tandemctl offset reset` sets it back\n")
	configCtl(t, g, "", append(commit, "1", "--offset", "7", "-o", "json")...).want(t, exitOK, `{"offset":"7"}`+"\n", "")
	configCtl(t, g, "", append(commit, "0", "--offset", "101")...).want(t, exitFailed, "",
		"tandemctl: the offset lies behind the queue's end (address=ADDR, end=100)\n  -> `tandemctl queues` shows the first and next offset of each queue\n", g.Nodes[0].Addr())
	g.SetOffset(configtest.Key{Group: "audit", Topic: "orders"}, 10, 0)
	configCtl(t, g, "", "offset", "list").want(t, exitOK, `TOPIC   GROUP    QUEUE  OFFSET  FIRST  NEXT  LAG
orders  audit    0      10      0      100   90
orders  billing  0      40      0      100   60
orders  billing  1      7       -      -     -
`, "")
	configCtl(t, g, "", "offset", "lag").want(t, exitOK, `TOPIC   GROUP    QUEUES  LAG  MOST IN ONE
orders  audit    1       90   90
orders  billing  2       60   60
`, "")
	configCtl(t, g, "", "offset", "lag", "--min", "80", "-o", "json").want(t, exitOK,
		`{"topic":"orders","group":"audit","queues":1,"unknown":0,"lag":"90","most":"90"}`+"\n", "")
	configCtl(t, g, "", "offset", "lag", "--group", "nobody").want(t, exitOK, "", "no offsets there\n")
}

func TestOffsetReset(t *testing.T) {
	g := configtest.Start(t, 1)
	key := configtest.Key{Group: "g", Topic: "t"}
	g.SetEnd("t", 0, 100)
	g.SetOffset(key, 40, 0)
	reset := []string{"offset", "reset", "--group", "g", "--topic", "t"}
	const toFirst = "QUEUE  FROM  TO  CHANGE\n0      40    0   -40\n"
	configCtl(t, g, "", append(reset, "--to", "first", "--dry-run")...).want(t, exitOK, toFirst, "")
	configCtl(t, g, "n\n", append(reset, "--to", "first")...).want(t, exitFailed, "",
		toFirst+"Set the offsets of g in t so? [y/N] tandemctl: not confirmed, nothing was done; --yes answers yes\n")
	if g.Offset(key) != 40 {
		t.Fatalf("at %d", g.Offset(key))
	}
	configCtl(t, g, "y\n", append(reset, "--to", "first")...).want(t, exitOK, toFirst, toFirst+"Set the offsets of g in t so? [y/N] ")
	configCtl(t, g, "", append(reset, "--to", "next", "--yes")...).want(t, exitOK, "QUEUE  FROM  TO   CHANGE\n0      0     100  +100\n", "")
	configCtl(t, g, "", append(reset, "--time", "2h", "--yes", "--queue", "0")...).want(t, exitOK, "QUEUE  FROM  TO  CHANGE\n0      100   50  -50\n", "")
	configCtl(t, g, "", append(reset, "--to", "50", "--yes", "-o", "json")...).want(t, exitOK, `{"queueId":0,"oldOffset":"50","newOffset":"50"}`+"\n", "")
	if r := configCtl(t, g, "", append(reset, "--to", "200", "--dry-run")...); r.code != exitFailed || !strings.Contains(r.err, "behind the queue's end") {
		t.Errorf("%+v", r)
	}
}

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "0s": now, "1700000000000": time.UnixMilli(1700000000000),
		"2026-04-30T10:00:00Z": time.Date(2026, 4, 30, 10, 0, 0, 0, time.UTC), "2026-04-30T10:00:00+02:00": time.Date(2026, 4, 30, 8, 0, 0, 0, time.UTC),
		"2026-04-30 10:00": time.Date(2026, 4, 30, 10, 0, 0, 0, time.UTC), "2026-04-30": time.Date(2026, 4, 30, 0, 0, 0, 0, time.UTC),
	} {
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-2h", "yesterday", "-5"} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestConfigDiff(t *testing.T) {
	g := configtest.Start(t, 2)
	diff := []string{"config", "diff", g.Nodes[0].Addr(), g.Nodes[1].Addr()}
	const header = "TABLE    SAME  DIFFERENT  ONLY A  ONLY B  VERSION A  VERSION B\n"
	ctl(t, "", "", diff...).want(t, exitOK, header+`topics   3     0          0       0       -          -
offsets  3     0          0       0       -          -
delays   3     0          0       0       -          -
groups   3     0          0       0       -          -
`, "")
	g.SetDiff(&configsyncv1.Difference{Kind: 1, Key: "orders", Field: "perm", Here: "6", There: "4"},
		&configsyncv1.Difference{Kind: 2, Key: "orders@billing", Field: "queue 3", Here: "12"})
	ctl(t, "", "", append(diff, "--tables", "topics,offsets")...).want(t, exitFailed, `TABLE    ENTRY                             FIELD             A                     B
topics   orders                            perm              6                     4
offsets  orders@billing                    queue 3           12                    -

`+header+`topics   3     1          0       0       -          -
offsets  3     1          0       0       -          -
`, "")
	if r := ctl(t, "", "", append(diff, "-q", "--tables", "groups")...); r.code != exitOK || strings.Contains(r.out, "orders") {
		t.Errorf("%+v", r)
	}
	if r := ctl(t, "", "", append(diff, "-o", "json", "--tables", "topics")...); r.code != exitFailed || strings.Count(r.out, "\n") != 2 || !strings.HasPrefix(r.out, `{"kind":"KIND_TOPICS","key":"orders"`) {
		t.Errorf("%+v", r)
	}
}

func TestConfigExportAndImport(t *testing.T) {
	g := configtest.Start(t, 2)
	configCtl(t, g, "", "topic", "create", "orders")
	dir := filepath.Join(t.TempDir(), "tables")
	r := configCtl(t, g, "", "config", "export", "--dir", dir)
	if r.code != exitOK || !strings.Contains(r.err, " B written to "+filepath.Join(dir, "topics.json")) {
		t.Errorf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "topics.json")); err != nil || !strings.HasPrefix(string(b), `{"orders":`) {
		t.Errorf("%s, %v", b, err)
	}
	if r := configCtl(t, g, "", "config", "export", "--dir", dir); r.code != exitUsage || !strings.Contains(r.err, "topics.json exists; write over it with --force") {
		t.Errorf("%+v", r)
	}
	if r := configCtl(t, g, "", "config", "export", "--dir", dir, "--force"); r.code != exitOK {
		t.Errorf("%+v", r)
	}
	r = configCtl(t, g, "", "config", "export", "--tables", "groups,delays", "--node", g.Nodes[1].Addr())
	r.want(t, exitOK, "{\n  \"delayOffset.json\": {},\n  \"subscriptionGroup.json\": {}\n}\n", "")
	one := filepath.Join(t.TempDir(), "one.json")
	if r := configCtl(t, g, "", "config", "export", "-f", one); r.code != exitOK || !strings.Contains(r.err, "written to "+one) {
		t.Errorf("%+v", r)
	}

	const header = "TABLE    ADDED  CHANGED  DELETED  UNCHANGED  KEPT HIGHER\n"
	configCtl(t, g, "", "config", "import", filepath.Join(dir, "delayOffset.json"), filepath.Join(dir, "consumerOffset.json"), "--dry-run").want(t, exitOK,
		header+"offsets  1      0        0        3          0\ndelays   1      0        0        3          0\n", "")
	for _, path := range []string{dir, one} {
		r := configCtl(t, g, "y\n", "config", "import", path)
		if r.code != exitOK || !strings.Contains(r.err, "Import that into "+g.Nodes[0].Addr()+"? [y/N]") || strings.Count(r.out, "\n") != 5 {
			t.Errorf("%s: %+v", path, r)
		}
	}
	if r := configCtl(t, g, "n\n", "config", "import", dir); r.code != exitFailed || r.out != "" {
		t.Errorf("%+v", r)
	}
	if r := configCtl(t, g, "", "config", "import", one, "--replace", "--yes", "-o", "json"); r.code != exitOK || strings.Count(r.out, "\n") != 4 {
		t.Errorf("%+v", r)
	}
	configCtl(t, g, "", "config", "import", one, "--yes", "--node", g.Nodes[1].Addr()).want(t, exitFailed, "",
		"tandemctl: this node takes no changes (address=ADDR, master=ADDR2)\n  -> the master is ADDR2: use --addr ADDR2\n", g.Nodes[1].Addr(), g.Nodes[0].Addr())
}

func TestImportOfWhatIsNone(t *testing.T) {
	dir := t.TempDir()
	bad, other := filepath.Join(dir, "bad.json"), filepath.Join(dir, "other.json")
	for name, text := range map[string]string{bad: "{", other: `{"passwd":{}}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file", dir: "has none of topics.json, consumerOffset.json", bad: "no JSON that config export wrote", other: `has a key "passwd"`,
	} {
		if r := ctl(t, "", "", "config", "import", path); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

func TestQuoteKeys(t *testing.T) {
	for in, want := range map[string]string{
		`{0:5,1:-6}`: `{"0":5,"1":-6}`, "{\n\t-1 :5,\"a{2:\\\"3\":[1,2,3] , 7:{8:9}}": "{\n\t\"-1\" :5,\"a{2:\\\"3\":[1,2,3] , \"7\":{\"8\":9}}",
		`{"a":1}`: `{"a":1}`, `[1,2]`: `[1,2]`, `{"x`: `{"x`, "": "", `{1`: `{1`,
	} {
		if got := string(quoteKeys([]byte(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestConfigStatus(t *testing.T) {
	g := configtest.Start(t, 3)
	g.OnStatus(func(n *configtest.Node, st *configsyncv1.StatusResponse) {
		switch n {
		case g.Nodes[0]:
			st.Watchers, st.UnsavedCommits, st.PeersUnheard = 8, 1, []string{"10.0.0.3:10921"}
		case g.Nodes[1]:
			for _, k := range st.GetKinds()[:2] {
				k.State, k.LastError, k.Remedy = configsyncv1.SyncState_SYNC_STATE_FAILED, "the table is empty; look there", "look there"
			}
			st.Kinds[3].Refused, st.Kinds[3].LastSuccess = map[string]int64{"b": 2, "a": 1}, timestamppb.Now()
			st.StorageAddress, st.StorageError = "s:1", "away"
		default:
			st.Master, st.MasterAddress, st.Reason, st.Remedy = true, "", "HEARING_PEERS", "wait"
		}
	})
	r := configCtl(t, g, "", "config", "status")
	want := `ADDR broker-a/0 master, open, epoch 1 (cluster DefaultCluster, tandem test)
 ! not heard in this reign: 10.0.0.3:10921
 -> offsets that they alone have are taken when they answer
 TABLE STATE ENTRIES VERSION SUM LAST ROUND FILE SAVED
 topics leading 0 1.7 0000000000000abc - never
 offsets leading 0 1.7 0000000000000abc - never
 delays leading 0 1.7 0000000000000abc - never
 groups leading 0 1.7 0000000000000abc - never
 8 tables watched by slaves, 1 queue with commits that are not on disk yet

ADDR2 broker-a/1 slave of ADDR, epoch 1 (cluster DefaultCluster, tandem test)
 ! its storage s:1: away
 TABLE STATE ENTRIES VERSION SUM LAST ROUND FILE SAVED
 topics failed 0 1.7 0000000000000abc never never
 offsets failed 0 1.7 0000000000000abc never never
 delays in sync 0 1.7 0000000000000abc never never
 groups in sync 0 1.7 0000000000000abc AGO never
 ! topics, offsets: the table is empty
 -> look there
 refused since the start, groups: a 1, b 2

ADDR3 broker-a/2 master, changes refused (cluster DefaultCluster, tandem test)
 ! HEARING_PEERS
 -> wait
`
	got := regexpAgo.ReplaceAllString(alignAddresses(r.out, g.Addrs()...), "AGO")
	if r.code != exitOK || r.err != "" || !strings.HasPrefix(got, want) {
		t.Errorf("%d %s\n got %s\nwant %s", r.code, r.err, got, want)
	}
	g.Nodes[1].Stop()
	r = configCtl(t, g, "", "config", "status")
	if r.code != exitFailed || !strings.Contains(r.out, g.Nodes[1].Addr()+"  not reached: ") || !strings.Contains(r.err, "is a config sync node running there?") {
		t.Errorf("%+v", r)
	}
	r = configCtl(t, g, "", "config", "status", "-o", "json")
	if r.code != exitFailed || strings.Count(r.out, `"status":{`) != 2 || strings.Count(r.out, `"error":`) != 1 || r.err != "" {
		t.Errorf("%+v", r)
	}
}

func TestConfigStatusWatch(t *testing.T) {
	g := configtest.Start(t, 1)
	out, _, stop := startCtl(t, "", "config", "status", "-w", "--interval", "100ms", "--addr", g.Nodes[0].Addr())
	defer stop()
	out.waitFor(t, "master, open, epoch 1")
	g.Lead(-1)
	out.waitFor(t, "/0  slave")
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestConfigUsage(t *testing.T) {
	for args, want := range map[string]string{
		"topic frobnicate":                          "there is no command \"frobnicate\"",
		"topic get":                                 "tandemctl topic get takes the name of one topic",
		"topic create a b":                          "takes the name of one topic",
		"topic create a --queues 0":                 "--queues 0 is not within 1 and 65535",
		"topic create a --queues 1 --read-queues 2": "give either --queues or",
		"topic create a --perm x":                   `--perm "x" is none of rw, r, w, -, a number`,
		"topic create a --filter-type x":            "is neither SINGLE_TAG nor MULTI_TAG",
		"topic create a --attribute x":              `--attribute "x" is not name=value`,
		"topic update a":                            "nothing to change is given",
		"topic list --addr nowhere":                 `addresses: "nowhere" is no address`,
		"group delete":                              "takes the name of one group",
		"group update a":                            "nothing to change is given",
		"group create a --attribute =x":             "is not name=value",
		"offset commit --group g":                   "--group and --topic are needed",
		"offset commit -g g -t t --queue 1":         "--queue and --offset are needed",
		"offset reset -g g -t t":                    `--to "" is none of first, next, a queue offset; or give --time`,
		"offset reset -g g -t t --to -1":            `--to "-1" is none of`,
		"offset reset -g g -t t --time soon":        `--time "soon" is none of`,
		"offset reset -g g -t t --queue -2 --to 1":  "--queue -2 is negative",
		"config diff a":                             "config diff takes two addresses",
		"config diff a:1 a:1":                       "a:1 is one node: name two",
		"config diff a:1 b:1 --tables x":            `--tables "x" is none of topics, offsets, delays, groups`,
		"config diff a:1 b:1 --limit 0":             "--limit 0 is not above 0",
		"config import":                             "takes a folder or files",
		"config status --interval 1ms -w":           "--interval 1ms is not within 100ms and 1h",
	} {
		if r := ctl(t, "", "", strings.Fields(args)...); r.code != exitUsage || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

func TestChangesSayThatTheyAreTriedAgain(t *testing.T) {
	g := configtest.Start(t, 1)
	g.Lead(-1)
	out, errOut, stop := startCtl(t, "", "topic", "create", "orders", "--addr", g.Nodes[0].Addr())
	defer stop()
	errOut.waitFor(t, "no node takes changes: "+g.Nodes[0].Addr()+" is a slave; trying again for 10s in all (--timeout)")
	g.Lead(0)
	out.waitFor(t, "orders")
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d\n%s", code, errOut)
	}
	g.Lead(-1)
	r := configCtl(t, g, "", "topic", "create", "more", "--timeout", "100ms")
	if r.code != exitFailed || !strings.Contains(r.err, "no node takes changes") || !strings.Contains(r.err, "`tandemctl config status`") {
		t.Errorf("%+v", r)
	}
}
