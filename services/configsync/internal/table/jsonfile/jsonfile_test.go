package jsonfile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/chunk"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// golden calls f with each file that RocketMQ wrote.
func golden(t testing.TB, f func(name string, kind entry.Kind, text []byte)) {
	t.Helper()
	n := 0
	for _, kind := range entry.Kinds() {
		names, err := filepath.Glob(filepath.Join("testdata", "*", kind.File()))
		must(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			must(t, err)
			f(name, kind, text)
			n++
		}
	}
	if n != 24 {
		t.Fatalf("%d files", n)
	}
}

// lines are those of a pretty text, without what depends on the order of the entries.
func lines(text []byte) []string {
	var out []string
	for line := range strings.Lines(string(text)) {
		out = append(out, strings.TrimRight(line, ",\n"))
	}
	slices.Sort(out)
	return out
}

// TestGoldenFilesComeBack: each file of RocketMQ, loaded and saved, has the same lines, to the blank, in the order of the
// keys. A change adds what version 5 has to the version and takes away only what was computed.
func TestGoldenFilesComeBack(t *testing.T) {
	golden(t, func(name string, kind entry.Kind, text []byte) {
		loaded, err := Decode(kind, text)
		if err == nil {
			for e := range loaded.Ascend("") {
				must(t, entry.ValidateImported(e.Key, e.Value))
			}
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		saved := AppendFile(nil, loaded)
		if !strings.Contains(string(text), "\n") { // what a slave got from its master and wrote as it came
			saved = appendTable(nil, loaded, false, loaded.Form())
		}
		if a, b := lines(text), lines(saved); !slices.Equal(a, b) {
			t.Errorf("%s: %q became %q", name, a, b)
		}
		again, err := Decode(kind, saved)
		if err != nil || again.Sum() != loaded.Sum() || again.Version() != loaded.Version() || again.Form() != loaded.Form() {
			t.Errorf("%s: read again: %v", name, err)
		}
		wire, err := Decode(kind, AppendWire(nil, loaded))
		if err != nil || wire.Sum() != loaded.Sum() || wire.Version() != loaded.Version() || strings.ContainsAny(string(AppendWire(nil, loaded)), "\n\t ") {
			t.Errorf("%s: on the wire %s, %v", name, AppendWire(nil, loaded), err)
		}
		if loaded.Len() == 0 {
			t.Errorf("%s: no entries", name)
		}
		e := loaded.Edit(7, 8)
		e.Touch()
		next, _ := e.Done()
		if again, err = Decode(kind, AppendFile(nil, next)); err != nil || again.Version() != next.Version() || again.Sum() != next.Sum() {
			t.Errorf("%s: after a change %v, %v", name, again.Version(), err)
		}
	})
}

func TestFormatExample(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	must(t, err)
	_, want, _ := strings.Cut(string(doc), "```json\n")
	want, _, _ = strings.Cut(want, "\n```")
	e := table.New(entry.ConsumerOffsets).Edit(1, 999)
	e.Commit(table.Commit{Topic: "TopicB", Group: "group-one", Offset: 0})
	own, _ := e.Done()
	e = own.Edit(1, 1000)
	e.Commit(table.Commit{Topic: "TopicA", Group: "group-one", Queue: 1, Offset: 46})
	e.Commit(table.Commit{Topic: "TopicA", Group: "group-one", Offset: 45})
	own, _ = e.Done()
	if got := string(AppendFile(nil, own)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWhatIsThere(t *testing.T) {
	read := func(store string, kind entry.Kind) *table.Table {
		text, err := os.ReadFile(filepath.Join("testdata", store, kind.File()))
		must(t, err)
		loaded, err := Decode(kind, text)
		must(t, err)
		return loaded
	}
	for _, store := range []string{"rocketmq-5.3.3-master", "rocketmq-4.9.7-master"} {
		if c := read(store, entry.Topics).Topic("Topic_odd-%|name"); c == nil || c.ReadQueues != 4 || c.Perm != 6 {
			t.Errorf("%s: %+v", store, c)
		}
		if q, ok := read(store, entry.ConsumerOffsets).Offset("TopicA", "group-one", 3); !ok || q.Offset != 45 {
			t.Errorf("%s: %+v", store, q)
		}
		if d, ok := read(store, entry.DelayOffsets).Delay(3); !ok || d.Offset != 140 {
			t.Errorf("%s: %+v", store, d)
		}
		if g := read(store, entry.Groups).Group("CID_ONSAPI_PULL"); g == nil || g.RetryMax != 16 || !g.ConsumeEnable {
			t.Errorf("%s: %+v", store, g)
		}
	}
	if v := read("rocketmq-5.3.3-master", entry.Topics).Version(); v != (entry.Version{Timestamp: 1795959907373, Counter: 9}) {
		t.Errorf("%v", v)
	}
	if got := read("rocketmq-4.9.7-master", entry.ConsumerOffsets); got.Form() != table.FormNoVersion || !got.Version().IsZero() {
		t.Errorf("%v", got.Version())
	}
}

// TestUnknownFieldsSurvive a change beside them; what was computed from the keys goes with a new key.
func TestUnknownFieldsSurvive(t *testing.T) {
	text := `{"aNewMap":{0:{"x":[1,2]}},"dataVersion":{"counter":4,"stateVersion":2,"timestamp":9},"groupTopicMap":{"G":["T"]},` +
		`"offsetTable":{"T@G":{0:5}},"zNull":null}`
	loaded, err := Decode(entry.ConsumerOffsets, []byte(text))
	must(t, err)
	if got := string(AppendWire(nil, loaded)); got != text {
		t.Errorf("%s", got)
	}
	commit := func(own *table.Table, group string) *table.Table {
		e := own.Edit(2, 10)
		e.Commit(table.Commit{Topic: "T", Group: group, Offset: 6})
		next, _ := e.Done()
		return next
	}
	want := strings.Replace(strings.Replace(text, "{0:5}", "{0:6}", 1), `"counter":4,"stateVersion":2,"timestamp":9`, `"counter":5,"stateVersion":2,"timestamp":10`, 1)
	if got := string(AppendWire(nil, commit(loaded, "G"))); got != want {
		t.Errorf("an old key: %s", got)
	}
	if got := string(AppendWire(nil, commit(loaded, "H"))); strings.Contains(got, "groupTopicMap") || !strings.Contains(got, `"zNull":null`) {
		t.Errorf("a new key: %s", got)
	}
	answer := `{"dataVersion":{"counter":1},"mappingDataVersion":{},"topicConfigTable":{},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}}`
	topics, err := Decode(entry.Topics, []byte(answer))
	must(t, err)
	if len(topics.Unknown()) != 0 {
		t.Errorf("%v", topics.Unknown())
	}
	old, err := Decode(entry.Topics, []byte(`{"dataVersion":{"counter":1,"timestatmp":77},"topicConfigTable":{}}`))
	if err != nil || old.Version().Timestamp != 77 {
		t.Errorf("the timestamp of 4.0: %v, %v", old.Version(), err)
	}
}

func TestRemovedOffsetsAreNotWritten(t *testing.T) {
	e := table.New(entry.ConsumerOffsets).Edit(1, 1)
	e.Commit(table.Commit{Topic: "T", Group: "G", Offset: 6})
	e.ResetAll([]table.Reset{{Topic: "T", Group: "G", Queue: 1, Offset: entry.NoOffset}}, 1)
	e.ResetAll([]table.Reset{{Topic: "T", Group: "H", Offset: entry.NoOffset}}, 1)
	next, _ := e.Done()
	if got := string(AppendWire(nil, next)); !strings.HasSuffix(got, `"offsetTable":{"T@G":{0:6}}}`) {
		t.Error(got)
	}
	e = table.New(entry.DelayOffsets).Edit(1, 1)
	for _, level := range []int32{10, 2, 1} {
		_, err := e.CommitDelay(level, int64(level))
		must(t, err)
	}
	must(t, e.ResetDelay(2, entry.NoOffset, 1))
	next, _ = e.Done()
	if got := string(AppendWire(nil, next)); !strings.HasSuffix(got, `"offsetTable":{1:1,10:10}}`) {
		t.Error(got)
	}
}

// TestT16_BadFiles: what is no whole table is told from what is one of an unknown shape.
func TestT16_BadFiles(t *testing.T) {
	golden(t, func(name string, kind entry.Kind, text []byte) {
		for n := range len(text) {
			if len(text) > 1500 && n%7 > 0 {
				continue
			}
			if _, err := Decode(kind, text[:n]); !errors.Is(err, fastjson.ErrSyntax) {
				t.Fatalf("%s cut at %d: %v", name, n, err)
			}
		}
	})
	for text, want := range map[string]error{
		"":                          fastjson.ErrSyntax,
		"garbage":                   fastjson.ErrSyntax,
		"\x00\x00\x00\x00":          fastjson.ErrSyntax,
		"{}":                        fastjson.ErrShape,
		"[]":                        fastjson.ErrShape,
		`{"topicConfigTable":[]}`:   fastjson.ErrShape,
		`{"topicConfigTable":null}`: fastjson.ErrShape,
		`{"topicConfigTable":{}}x`:  fastjson.ErrSyntax,
		`{"topicConfigTable":{},"topicConfigTable":{}}`:                    fastjson.ErrSyntax,
		`{"topicConfigTable":{"T":{}},"dataVersion":7}`:                    fastjson.ErrShape,
		`{"topicConfigTable":{"T":{}},"dataVersion":{"counter":-1}}`:       fastjson.ErrShape,
		`{"topicConfigTable":{"T":{"perm":"RW"}}}`:                         fastjson.ErrShape,
		`{"topicConfigTable":{"T":{},"T":{}}}`:                             table.ErrDuplicate,
		`{"topicConfigTable":{"":{}}}`:                                     entry.ErrName,
		`{"topicConfigTable":{},"x":"` + strings.Repeat("x", 1<<20) + `"}`: fastjson.ErrShape,
	} {
		if _, err := Decode(entry.Topics, []byte(text)); !errors.Is(err, want) {
			t.Errorf("%.80s: %v", text, err)
		}
	}
	_, err := Decode(entry.Topics, []byte(`{"topicConfigTable":{"T":{"perm":"RW"}}}`))
	if e := errdefs.As(err); e == nil || e.Field != "perm" || e.Meta["key"] != "T" || e.Meta["offset"] == "" {
		t.Errorf("it does not say where: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	golden(f, func(_ string, kind entry.Kind, text []byte) { f.Add(byte(kind), text) })
	f.Fuzz(func(t *testing.T, kind byte, text []byte) {
		k := entry.Kind(kind%4 + 1)
		loaded, err := Decode(k, text)
		if err != nil {
			return
		}
		for _, saved := range [][]byte{AppendFile(nil, loaded), AppendWire(nil, loaded)} {
			again, err := Decode(k, saved)
			if err != nil || again.Sum() != loaded.Sum() || again.Version() != loaded.Version() || again.Derived() != loaded.Derived() {
				t.Fatalf("%q became %q: %v", text, saved, err)
			}
		}
	})
}

// TestGoldenFilesGoThroughChunks: a slave writes of each entry what its master would, to the byte.
func TestGoldenFilesGoThroughChunks(t *testing.T) {
	through := func(name string, kind entry.Kind, text []byte) {
		loaded, err := Decode(kind, text)
		must(t, err)
		a := chunk.NewAssembly(kind)
		for c := range chunk.Split(loaded.Full()) {
			must(t, a.Add(c))
		}
		d, err := a.Delta()
		must(t, err)
		got, err := d.Table()
		must(t, err)
		if got.Len() != loaded.Len() || got.Sum() != loaded.Sum() || !slices.Equal(got.Unknown(), loaded.Unknown()) {
			t.Errorf("%s: %d entries became %d, %v became %v", name, loaded.Len(), got.Len(), loaded.Unknown(), got.Unknown())
		}
		for e := range loaded.Ascend("") {
			there, _ := got.Get(e.Key)
			if want := string(e.Value.AppendJSON(nil)); there.Value == nil || string(there.Value.AppendJSON(nil)) != want {
				t.Errorf("%s: %s became %+v", name, want, there.Value)
			}
		}
	}
	golden(t, through)
	through("unknown fields", entry.Topics, []byte(`{"dataVersion":{"counter":1},"new":{"a":[1,{2:3}]},"topicConfigTable":{`+
		`"A":{"attributes":{"k":"v"},"new":"x","order":true,"perm":2,"topicName":"A","z":{0:1}},"B":{"topicName":"B"}}}`))
	through("unknown fields", entry.Groups, []byte(`{"subscriptionGroupTable":{"G":{"a":null,"groupName":"G","groupRetryPolicy":{"type":"X"},"zz":1.5e3}},"x":0}`))
}
