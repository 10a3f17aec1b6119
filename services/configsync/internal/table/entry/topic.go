package entry

import (
	"maps"
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// Perm is RocketMQ's PermName.
type Perm int32

// Permissions.
const (
	PermInherit  Perm = 1
	PermWrite    Perm = 2
	PermRead     Perm = 4
	PermPriority Perm = 8
)

// Filter types of a topic.
const (
	SingleTag = "SINGLE_TAG"
	MultiTag  = "MULTI_TAG"
)

// TopicConfig is RocketMQ's.
type TopicConfig struct {
	Name        string
	ReadQueues  int32
	WriteQueues int32
	Perm        Perm
	FilterType  string // SingleTag or MultiTag
	SysFlag     int32  // 1: unit, 2: unit-sub
	Order       bool
	Attributes  map[string]string // 5.x
	Unknown     []Field           // in the order of their names

	missing uint32 // properties that the text it was read from has not
}

// NewTopic returns a config with RocketMQ's defaults.
func NewTopic(name string) *TopicConfig {
	return &TopicConfig{Name: name, ReadQueues: 16, WriteQueues: 16, Perm: PermRead | PermWrite, FilterType: SingleTag}
}

func topicProps() []property[TopicConfig] {
	return []property[TopicConfig]{
		mapProp("attributes", func(t *TopicConfig) *map[string]string { return &t.Attributes }),
		boolProp("order", false, func(t *TopicConfig) *bool { return &t.Order }),
		intProp("perm", int32(PermRead|PermWrite), func(t *TopicConfig) *int32 { return (*int32)(&t.Perm) }),
		intProp("readQueueNums", 16, func(t *TopicConfig) *int32 { return &t.ReadQueues }),
		{
			name: "topicFilterType",
			read: func(r *fastjson.Reader, t *TopicConfig) error {
				name, err := r.String()
				switch {
				case err != nil:
				case name == SingleTag:
					t.FilterType = SingleTag // one string for all topics
				case name == MultiTag:
					t.FilterType = MultiTag
				default:
					err = r.Shape("unknown filter type %.40q", name)
				}
				return err
			},
			write: func(w *fastjson.Writer, t *TopicConfig) { w.String(t.FilterType) },
			plain: func(t *TopicConfig) bool { return t.FilterType == SingleTag },
		},
		stringProp("topicName", func(t *TopicConfig) *string { return &t.Name }),
		intProp("topicSysFlag", 0, func(t *TopicConfig) *int32 { return &t.SysFlag }),
		intProp("writeQueueNums", 16, func(t *TopicConfig) *int32 { return &t.WriteQueues }),
	}
}

var topicProperties = topicProps()

// ReadTopic reads the config that stands under key.
func ReadTopic(r *fastjson.Reader, key string) (*TopicConfig, error) {
	t := NewTopic(key)
	if err := readConfig(r, topicProperties, t, &t.missing, &t.Unknown); err != nil {
		return nil, err
	}
	if t.Name != key {
		return nil, r.Shape("topic %.80q stands under the name %.80q", t.Name, key)
	}
	t.Name = key // one string for both
	return t, nil
}

// Write writes the config as RocketMQ does.
func (t *TopicConfig) Write(w *fastjson.Writer) {
	writeConfig(w, topicProperties, t, t.missing, t.Unknown)
}

// Kind is Topics.
func (t *TopicConfig) Kind() Kind { return Topics }

// AppendJSON appends the compact form.
func (t *TopicConfig) AppendJSON(b []byte) []byte {
	w := fastjson.NewWriter(b, false)
	t.Write(w)
	return w.Bytes()
}

// Equal reports whether all fields are equal, unknown ones included.
func (t *TopicConfig) Equal(v Value) bool {
	o, ok := v.(*TopicConfig)
	return ok && t.Name == o.Name && t.ReadQueues == o.ReadQueues && t.WriteQueues == o.WriteQueues && t.Perm == o.Perm &&
		t.FilterType == o.FilterType && t.SysFlag == o.SysFlag && t.Order == o.Order &&
		maps.Equal(t.Attributes, o.Attributes) && slices.Equal(t.Unknown, o.Unknown)
}

// Clone returns a copy that may be changed.
func (t *TopicConfig) Clone() *TopicConfig {
	c := *t
	c.Attributes = maps.Clone(t.Attributes)
	c.Unknown = slices.Clone(t.Unknown)
	return &c
}

// Validate checks what a change may put into the table; maxQueues bounds both queue counts.
func (t *TopicConfig) Validate(maxQueues int32) error {
	if err := ValidateTopicName(t.Name); err != nil {
		return err
	}
	return t.validateFields(1, maxQueues, PermPriority)
}

// validateFields checks all but the name.
func (t *TopicConfig) validateFields(minQueues, maxQueues int32, noPerm Perm) error {
	for _, q := range []struct {
		field string
		n     int32
	}{{"read_queues", t.ReadQueues}, {"write_queues", t.WriteQueues}} {
		if q.n < minQueues || q.n > maxQueues {
			return ErrField.WithField(q.field).WithMsg("%d queues", q.n).WithRemedy("use %d to %d", minQueues, maxQueues)
		}
	}
	if t.Perm < 0 || t.Perm >= noPerm {
		return ErrField.WithField("perm").WithMsg("permission %d", t.Perm).
			WithRemedy("use the sum of 4 (read), 2 (write) and 1 (inherit)")
	}
	if t.FilterType != SingleTag && t.FilterType != MultiTag {
		return ErrField.WithField("filter_type").WithMsg("filter type %.40q", t.FilterType).
			WithRemedy("use %s or %s", SingleTag, MultiTag)
	}
	if err := validateAttributes(t.Attributes); err != nil {
		return err
	}
	if err := validateUnknown(t.Unknown, topicProperties); err != nil {
		return err
	}
	if t.SysFlag < 0 || t.SysFlag > 3 {
		return ErrField.WithField("sys_flag").WithMsg("flag %d", t.SysFlag).WithRemedy("use the sum of 1 (unit) and 2 (unit-sub)")
	}
	return nil
}
