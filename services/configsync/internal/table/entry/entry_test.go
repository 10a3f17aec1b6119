package entry

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 127)
	for _, name := range []string{"A", "Topic_odd-%|name", long, "%RETRY%" + long + long, "%DLQ%g", "0"} {
		if err := ValidateTopicName(name); err != nil {
			t.Errorf("topic %q: %v", name, err)
		}
	}
	for _, name := range []string{"", long + "x", "a b", "a@b", "a.b", "ä", "a/b", "a\x00", "%RETRY%", "%RETRY%" + long + long + "xx", "%DLQ%a b"} {
		if err := ValidateTopicName(name); !errors.Is(err, ErrName) || errdefs.As(err).Field != "topic" || errdefs.As(err).Remedy == "" {
			t.Errorf("topic %.20q: %v", name, err)
		}
	}
	if err := ValidateGroupName(long + long + "x"); err != nil {
		t.Errorf("255 characters: %v", err)
	}
	if err := ValidateGroupName(long + long + "xx"); !errors.Is(err, ErrName) || errdefs.As(err).Field != "group" {
		t.Errorf("256 characters: %v", err)
	}
	for key, ok := range map[string]bool{"T@G": true, "%RETRY%g@g": true, "T@": false, "@G": false, "T": false, "T@G@x": true} {
		if _, _, got := SplitOffsetKey(key); got != ok || (ValidateKey(ConsumerOffsets, key) == nil) != ok {
			t.Errorf("key %q: %v", key, got)
		}
	}
	for key, want := range map[string]int32{"1": 1, "18": 18, "65535": 65535} {
		if n, ok := ParseDelayKey(key); n != want || !ok {
			t.Errorf("level %q: %d %v", key, n, ok)
		}
	}
	for _, key := range []string{"", "0", "-1", "01", "+1", "65536", "x", "1 "} {
		if _, ok := ParseDelayKey(key); ok {
			t.Errorf("level %q is taken", key)
		}
	}
}

func TestVersions(t *testing.T) {
	in := []Version{{}, {0, 9, 1}, {0, 10, 1}, {0, 1, 2}, {1, 0, 0}, {1, 5, 7}, {2, 0, 0}}
	for i, a := range in {
		for j, b := range in {
			want := map[bool]int{true: 1}[i > j]
			if i < j {
				want = -1
			}
			if got := a.Compare(b); got != want || a.Equal(b) != (i == j) {
				t.Errorf("%v against %v: %d", a, b, got)
			}
		}
	}
	if v := (Version{3, 100, 7}).Next(2, 50); v != (Version{3, 50, 8}) {
		t.Errorf("next is %v", v)
	}
	if v := (Version{3, 100, 7}).Next(4, 200); v != (Version{4, 200, 8}) {
		t.Errorf("next is %v", v)
	}
}

func TestValidate(t *testing.T) {
	for field, change := range map[string]func(*TopicConfig){
		"topic":        func(c *TopicConfig) { c.Name = "a b" },
		"read_queues":  func(c *TopicConfig) { c.ReadQueues = 0 },
		"write_queues": func(c *TopicConfig) { c.WriteQueues = 101 },
		"perm":         func(c *TopicConfig) { c.Perm = 8 },
		"filter_type":  func(c *TopicConfig) { c.FilterType = "NO_TAG" },
		"sys_flag":     func(c *TopicConfig) { c.SysFlag = -1 },
		"attributes":   func(c *TopicConfig) { c.Attributes = map[string]string{"a": "\xff"} },
		"unknown":      func(c *TopicConfig) { c.Unknown = []Field{{"x", "{ }"}} },
	} {
		c := NewTopic("T")
		if err := c.Validate(100); err != nil {
			t.Fatal(err)
		}
		change(c)
		if err := c.Validate(100); err == nil || errdefs.As(err).Field != field || errdefs.As(err).Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	for field, change := range map[string]func(*GroupConfig){
		"group":                   func(c *GroupConfig) { c.Name = "" },
		"retry_queues":            func(c *GroupConfig) { c.RetryQueues = -1 },
		"retry_max":               func(c *GroupConfig) { c.RetryMax = -2 },
		"broker_id":               func(c *GroupConfig) { c.BrokerID = -1 },
		"slow_broker_id":          func(c *GroupConfig) { c.SlowBrokerID = -1 },
		"consume_timeout_minutes": func(c *GroupConfig) { c.ConsumeTimeoutMinutes = 0 },
		"retry_policy":            func(c *GroupConfig) { c.RetryPolicy = `{"type": 1}` },
		"attributes":              func(c *GroupConfig) { c.Attributes = map[string]string{"": "x"} },
	} {
		c := NewGroup("G")
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(c)
		if err := c.Validate(); err == nil || errdefs.As(err).Field != field || errdefs.As(err).Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestUnknownFieldsOfAChange(t *testing.T) {
	for name, fields := range map[string][]Field{
		"known": {{"perm", "1"}}, "order": {{"b", "1"}, {"a", "1"}}, "twice": {{"a", "1"}, {"a", "1"}}, "empty": {{"", "1"}}, "no JSON": {{"a", "x"}},
		"more": {{"a", "1,\"b\":2"}}, "large": {{"a", `"` + strings.Repeat("x", maxAttributes) + `"`}}, "not UTF-8": {{"\xff", "1"}},
	} {
		c := NewTopic("T")
		c.Unknown = fields
		if err := c.Validate(100); !errors.Is(err, ErrField) || errdefs.As(err).Field != "unknown" {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := NewTopic("T")
	c.Unknown = []Field{{"a", "{0:[1]}"}, {"b", "null"}}
	c.Attributes = map[string]string{"a": strings.Repeat("x", maxAttributes-1)}
	if err := c.Validate(100); err != nil {
		t.Error(err)
	}
	c.Attributes["b"] = "x"
	if err := c.Validate(100); errdefs.As(err).Field != "attributes" {
		t.Error(err)
	}
	for _, key := range []string{"", "\xff", strings.Repeat("x", MaxKey+1)} {
		if err := ValidateKey(Topics, key); !errors.Is(err, ErrName) {
			t.Errorf("key %.10q: %v", key, err)
		}
	}
}

// TestJSON: the same text comes back, and what means the same is equal whatever dialect it came in.
func TestJSON(t *testing.T) {
	four := `{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}`
	five := `{"attributes":{},` + four[1:]
	odd := `{"attributes":{"+a":"b","c":"d"},"future":{0:[1]},"order":true,"perm":7,"readQueueNums":1,"topicFilterType":"MULTI_TAG",` +
		`"topicName":"T","topicSysFlag":1,"writeQueueNums":2,"zone":null}`
	var values []*TopicConfig
	for _, text := range []string{four, five, odd} {
		c, err := ReadTopic(fastjson.NewReader([]byte(text)), "T")
		if err != nil {
			t.Fatal(err)
		}
		if got := string(c.AppendJSON(nil)); got != text {
			t.Errorf("%s became %s", text, got)
		}
		values = append(values, c)
	}
	h0, _ := Hash("T", values[0], nil)
	h1, _ := Hash("T", values[1], nil)
	h2, _ := Hash("T", values[2], nil)
	if !values[0].Equal(values[1]) || h0 != h1 || values[1].Equal(values[2]) || h1 == h2 {
		t.Error("what is equal is not, or the other way round")
	}
	changed := values[0].Clone()
	changed.Attributes = map[string]string{"k": "v"}
	if got := string(changed.AppendJSON(nil)); got != `{"attributes":{"k":"v"},`+four[1:] {
		t.Errorf("a 4.x topic with an attribute is %s", got)
	}
	group := `{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,"consumeFromMinEnable":true,` +
		`"consumeMessageOrderly":true,"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,` +
		`"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":1,"subscriptionDataSet":[{"topic":"T"}],"whichBrokerWhenConsumeSlowly":1}`
	g, err := ReadGroup(fastjson.NewReader([]byte(group)), "G")
	if err != nil || string(g.AppendJSON(nil)) != group {
		t.Errorf("%s, %v", g.AppendJSON(nil), err)
	}
	if d := Differences(g, NewGroup("G")); len(d) != 4 || d[0].Name != "consumeEnable" || d[3].Name != "subscriptionDataSet" {
		t.Errorf("differences %v", d)
	}
}

func TestUnknownShapes(t *testing.T) {
	for text, field := range map[string]string{
		`{"perm":"RW"}`: "perm", `{"topicFilterType":"NEW_KIND"}`: "topicFilterType", `{"readQueueNums":3000000000}`: "readQueueNums",
		`{"order":1}`: "order", `{"attributes":{"a":1}}`: "attributes", `{"topicName":"U"}`: "", `[]`: "",
	} {
		_, err := ReadTopic(fastjson.NewReader([]byte(text)), "T")
		if !errors.Is(err, fastjson.ErrShape) || errdefs.As(err).Field != field {
			t.Errorf("%s: %v", text, err)
		}
	}
	if c, err := ReadTopic(fastjson.NewReader([]byte(`{"perm":null,"x":1,"x":2}`)), "T"); err != nil || c.Perm != 6 || GetField(c.Unknown, "x") != "2" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, text := range []string{`{-1:0}`, `{x:0}`, `{0:-2}`, `{0:1,0:2}`, `{"a":1}`, `{3000000000:1}`, `{0:1.5}`, `[]`} {
		if _, err := ReadOffsets(fastjson.NewReader([]byte(text))); err == nil {
			t.Errorf("offsets %s are taken", text)
		}
	}
}

func randomOffsets(rnd *rand.Rand) *Offsets {
	var queues []QueueOffset
	for range rnd.IntN(6) {
		queues = append(queues, QueueOffset{Queue: rnd.Int32N(5), Epoch: rnd.Uint32N(3), Offset: rnd.Int64N(5) - 1})
	}
	return NewOffsets(queues...)
}

func TestJoinIsALattice(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		a, b, c := randomOffsets(rnd), randomOffsets(rnd), randomOffsets(rnd)
		before := a.appendPacked(nil)
		ab := a.Join(b)
		if !ab.Equal(b.Join(a)) || !ab.Join(c).Equal(a.Join(b.Join(c))) || a.Join(a) != a || ab.Join(b) != ab {
			t.Fatalf("%v, %v, %v", a, b, c)
		}
		for q := range a.All() {
			if got, ok := ab.Get(q.Queue); !ok || got.Epoch < q.Epoch || got.Epoch == q.Epoch && got.Offset < q.Offset {
				t.Fatalf("%v joined with %v is poorer: %v", a, b, ab)
			}
		}
		if string(a.appendPacked(nil)) != string(before) {
			t.Fatal("a value has changed")
		}
		d, e := &Delay{rnd.Int64N(3), rnd.Uint32N(3)}, &Delay{rnd.Int64N(3), rnd.Uint32N(3)}
		if *d.Join(e) != *e.Join(d) || d.Join(d) != d {
			t.Fatalf("%v %v", d, e)
		}
	}
}

func TestHashOfWhatDiffers(t *testing.T) {
	seen := map[uint64]string{}
	for name, v := range map[string]Value{
		"topic": NewTopic("T"), "group": NewGroup("T"), "none": NewOffsets(), "zero": NewOffsets(QueueOffset{}),
		"one": NewOffsets(QueueOffset{Offset: 1}), "epoch": NewOffsets(QueueOffset{Epoch: 1}), "queue": NewOffsets(QueueOffset{Queue: 1}), "delay": &Delay{},
	} {
		h, _ := Hash("T", v, nil)
		if seen[h] != "" {
			t.Errorf("%s has the hash of %s", name, seen[h])
		}
		seen[h] = name
	}
}
