package message

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestValidateTopic(t *testing.T) {
	for _, tc := range []limitCase{
		{"as it is", Limits{}, func(*Draft) {}, "", ""},
		{"topic of 127", Limits{}, func(d *Draft) { d.Topic = strings.Repeat("t", 127) }, "", ""},
		{"topic of 128", Limits{}, func(d *Draft) { d.Topic = strings.Repeat("t", 128) }, "topic", "128 characters"},
		{"retry topic of 255", Limits{}, func(d *Draft) { d.Topic = "%RETRY%" + strings.Repeat("t", 248) }, "", ""},
		{"retry topic of 256", Limits{}, func(d *Draft) { d.Topic = "%RETRY%" + strings.Repeat("t", 249) }, "topic", "256 characters"},
		{"empty topic", Limits{}, func(d *Draft) { d.Topic = "" }, "topic", "empty"},
		{"dot", Limits{}, func(d *Draft) { d.Topic = "." }, "topic", `"."`},
		{"two dots", Limits{}, func(d *Draft) { d.Topic = ".." }, "topic", `".."`},
		{"dot inside", Limits{}, func(d *Draft) { d.Topic = "a.b" }, "topic", `"." at 1`},
		{"slash", Limits{}, func(d *Draft) { d.Topic = "a/b" }, "topic", `"/" at 1`},
		{"backslash", Limits{}, func(d *Draft) { d.Topic = `a\b` }, "topic", "at 1"},
		{"blank", Limits{}, func(d *Draft) { d.Topic = "a b" }, "topic", "at 1"},
		{"NUL", Limits{}, func(d *Draft) { d.Topic = "a\x00" }, "topic", "at 1"},
		{"not ASCII", Limits{}, func(d *Draft) { d.Topic = "a\u4e2d" }, "topic", "at 1"},
		{"all legal kinds", Limits{}, func(d *Draft) { d.Topic = "azAZ09_%|-" }, "", ""},
	} {
		tc.check(t)
	}
}

type limitCase struct {
	name   string
	limits Limits
	change func(*Draft)
	field  string // "": allowed
	text   string
}

func TestValidateOthers(t *testing.T) {
	props := func(n int) []byte { return append(bytes.Repeat([]byte("p"), n-3), "\x01v\x02"...) }
	for _, tc := range []limitCase{
		{"queue -1", Limits{}, func(d *Draft) { d.QueueID = -1 }, "queueId", "-1"},
		{"empty body", Limits{}, func(d *Draft) { d.Body = nil }, "body", "empty"},
		{"body of 4 MiB", Limits{}, func(d *Draft) { d.Body = make([]byte, DefaultMaxBody) }, "", ""},
		{"body of 4 MiB and 1", Limits{}, func(d *Draft) { d.Body = make([]byte, DefaultMaxBody+1) }, "body", "4194305 bytes"},
		{"own limit", Limits{MaxBody: 4}, func(*Draft) {}, "body", "more than the 4"},
		{"born before 1970", Limits{}, func(d *Draft) { d.BornTimestamp = -1 }, "bornTimestamp", "-1"},
		{"reconsumed -1 times", Limits{}, func(d *Draft) { d.ReconsumeTimes = -1 }, "reconsumeTimes", "-1"},
		{"negative half offset", Limits{}, func(d *Draft) { d.PreparedTransactionOffset = -1 }, "preparedTransactionOffset", "-1"},
		{"properties fill the record", Limits{}, func(d *Draft) { d.Properties = props(32747) }, "", ""},
		{"properties and checksum too large", Limits{}, func(d *Draft) { d.Properties = props(32748) }, "properties", "32768 bytes"},
		{"separator makes it too large", Limits{}, func(d *Draft) { p := props(32748); d.Properties = p[:len(p)-1] }, "properties", "32768 bytes"},
		{"no checksum", Limits{NoCRC: true}, func(d *Draft) { d.Properties = props(32767) }, "", ""},
		{"no checksum, too large", Limits{NoCRC: true}, func(d *Draft) { d.Properties = props(32768) }, "properties", "32768 bytes"},
		{"no properties", Limits{}, func(d *Draft) { d.Properties = nil }, "", ""},
		{"no last separator", Limits{}, func(d *Draft) { d.Properties = []byte("a\x01b") }, "", ""},
		{"checksum of another record", Limits{}, func(d *Draft) { d.Properties = []byte("a\x01b\x02__CRC32#\x010000000000\x02") }, "", ""},
		{"no name", Limits{}, func(d *Draft) { d.Properties = []byte("a\x01b\x02\x01v\x02") }, "properties", "byte 4"},
		{"no value", Limits{}, func(d *Draft) { d.Properties = []byte("name\x01\x02") }, "properties", "byte 0"},
		{"no 01", Limits{}, func(d *Draft) { d.Properties = []byte("name\x02") }, "properties", "byte 0"},
		{"01 in a value", Limits{}, func(d *Draft) { d.Properties = []byte("name\x01a\x01b\x02") }, "properties[name]", "01 at 1"},
		{"02 alone", Limits{}, func(d *Draft) { d.Properties = []byte("a\x01b\x02\x02") }, "properties", "byte 4"},
	} {
		tc.check(t)
	}
}

func (tc limitCase) check(t *testing.T) {
	t.Helper()
	d := draft()
	tc.change(&d)
	err := tc.limits.Validate(&d)
	if tc.field == "" {
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := len(Append(nil, &d, !tc.limits.NoCRC)); got != EncodedSize(&d, !tc.limits.NoCRC) {
			t.Errorf("%s: %d bytes, EncodedSize says %d", tc.name, got, EncodedSize(&d, !tc.limits.NoCRC))
		}
		return
	}
	e := errdefs.As(err)
	if e == nil || e.Class != errdefs.InvalidArgument || e.Field != tc.field || !strings.Contains(err.Error(), tc.text) {
		t.Errorf("%s: %v; want field %s with %q", tc.name, err, tc.field, tc.text)
	}
}

// TestWhatIsAllowedIsSound: what Validate lets pass is a record that Check finds sound.
func TestWhatIsAllowedIsSound(t *testing.T) {
	d := draft()
	d.Topic = "%RETRY%" + strings.Repeat("t", 248)
	d.Body = make([]byte, DefaultMaxBody)
	d.Properties = append(bytes.Repeat([]byte("p"), 32744), "\x01v"...)
	if err := (Limits{}).Validate(&d); err != nil {
		t.Fatal(err)
	}
	rec := stamped(d, true, 1, 2)
	if n, k, err := Check(rec, 2, all); err != nil || k != Record || n != len(rec) {
		t.Errorf("%d %d %v", n, k, err)
	}
}

func TestCheckProperty(t *testing.T) {
	for _, tc := range []struct{ name, value, field string }{
		{"a", "b", ""},
		{"a", "\x00\u4e2d", ""},
		{"", "b", "properties"},
		{"a\x01", "b", "properties"},
		{"a\x02", "b", "properties"},
		{"a", "", "properties[a]"},
		{"a", "b\x01", "properties[a]"},
		{"a", "b\x02", "properties[a]"},
		{"__CRC32#", "b", "properties[__CRC32#]"},
	} {
		err := CheckProperty(tc.name, tc.value)
		if tc.field == "" && err != nil || tc.field != "" && (errdefs.As(err) == nil || errdefs.As(err).Field != tc.field) {
			t.Errorf("%q=%q: %v", tc.name, tc.value, err)
		}
	}
}

func TestTopicsOfTheSystem(t *testing.T) {
	for topic, want := range map[string][2]bool{
		"TopicTest":                {false, false},
		"TBW102":                   {true, false},
		"SCHEDULE_TOPIC_XXXX":      {true, true},
		"RMQ_SYS_TRANS_HALF_TOPIC": {true, true},
		"RMQ_SYS_TRACE_TOPIC":      {true, false},
		"rmq_sys_wheel_timer":      {true, true},
		"rmq_sys":                  {false, false},
		"%RETRY%g":                 {false, false},
	} {
		if IsSystemTopic(topic) != want[0] || IsInternalTopic(topic) != want[1] {
			t.Errorf("%s: system %v, internal %v", topic, IsSystemTopic(topic), IsInternalTopic(topic))
		}
	}
}
