package entry

import (
	"maps"
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// GroupConfig is RocketMQ's SubscriptionGroupConfig.
type GroupConfig struct {
	Name                     string
	ConsumeEnable            bool
	ConsumeFromMinEnable     bool
	ConsumeBroadcastEnable   bool
	ConsumeMessageOrderly    bool // 5.x
	RetryQueues              int32
	RetryMax                 int32
	BrokerID                 int64
	SlowBrokerID             int64 // whichBrokerWhenConsumeSlowly
	NotifyConsumerIDsChanged bool
	SysFlag                  int32             // 5.x
	ConsumeTimeoutMinutes    int32             // 5.x
	RetryPolicy              string            // 5.x: JSON of groupRetryPolicy
	Attributes               map[string]string // 5.x
	Unknown                  []Field           // in the order of their names

	missing uint32 // properties that the text it was read from has not
}

// DefaultRetryPolicy is what RocketMQ 5 writes for a group without one.
const DefaultRetryPolicy = `{"type":"CUSTOMIZED"}`

// NewGroup returns a config with RocketMQ's defaults.
func NewGroup(name string) *GroupConfig {
	return &GroupConfig{
		Name: name, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true, RetryQueues: 1, RetryMax: 16,
		SlowBrokerID: 1, NotifyConsumerIDsChanged: true, ConsumeTimeoutMinutes: 15, RetryPolicy: DefaultRetryPolicy,
	}
}

func groupProps() []property[GroupConfig] {
	return []property[GroupConfig]{
		mapProp("attributes", func(g *GroupConfig) *map[string]string { return &g.Attributes }),
		longProp("brokerId", 0, func(g *GroupConfig) *int64 { return &g.BrokerID }),
		boolProp("consumeBroadcastEnable", true, func(g *GroupConfig) *bool { return &g.ConsumeBroadcastEnable }),
		boolProp("consumeEnable", true, func(g *GroupConfig) *bool { return &g.ConsumeEnable }),
		boolProp("consumeFromMinEnable", true, func(g *GroupConfig) *bool { return &g.ConsumeFromMinEnable }),
		boolProp("consumeMessageOrderly", false, func(g *GroupConfig) *bool { return &g.ConsumeMessageOrderly }),
		intProp("consumeTimeoutMinute", 15, func(g *GroupConfig) *int32 { return &g.ConsumeTimeoutMinutes }),
		stringProp("groupName", func(g *GroupConfig) *string { return &g.Name }),
		{
			name: "groupRetryPolicy",
			read: func(r *fastjson.Reader, g *GroupConfig) error {
				policy, err := r.Raw()
				if policy != DefaultRetryPolicy { // else one string for all groups
					g.RetryPolicy = policy
				}
				return err
			},
			write: func(w *fastjson.Writer, g *GroupConfig) { w.Raw(g.RetryPolicy) },
			plain: func(g *GroupConfig) bool { return g.RetryPolicy == DefaultRetryPolicy },
		},
		intProp("groupSysFlag", 0, func(g *GroupConfig) *int32 { return &g.SysFlag }),
		boolProp("notifyConsumerIdsChangedEnable", true, func(g *GroupConfig) *bool { return &g.NotifyConsumerIDsChanged }),
		intProp("retryMaxTimes", 16, func(g *GroupConfig) *int32 { return &g.RetryMax }),
		intProp("retryQueueNums", 1, func(g *GroupConfig) *int32 { return &g.RetryQueues }),
		longProp("whichBrokerWhenConsumeSlowly", 1, func(g *GroupConfig) *int64 { return &g.SlowBrokerID }),
	}
}

var groupProperties = groupProps()

// ReadGroup reads the config that stands under key.
func ReadGroup(r *fastjson.Reader, key string) (*GroupConfig, error) {
	g := NewGroup(key)
	if err := readConfig(r, groupProperties, g, &g.missing, &g.Unknown); err != nil {
		return nil, err
	}
	if g.Name != key {
		return nil, r.Shape("group %.80q stands under the name %.80q", g.Name, key)
	}
	g.Name = key // one string for both
	return g, nil
}

// Write writes the config as RocketMQ does.
func (g *GroupConfig) Write(w *fastjson.Writer) {
	writeConfig(w, groupProperties, g, g.missing, g.Unknown)
}

// Kind is Groups.
func (g *GroupConfig) Kind() Kind { return Groups }

// AppendJSON appends the compact form.
func (g *GroupConfig) AppendJSON(b []byte) []byte {
	w := fastjson.NewWriter(b, false)
	g.Write(w)
	return w.Bytes()
}

// Equal reports whether all fields are equal, unknown ones included.
func (g *GroupConfig) Equal(v Value) bool {
	o, ok := v.(*GroupConfig)
	if !ok || !maps.Equal(g.Attributes, o.Attributes) || !slices.Equal(g.Unknown, o.Unknown) {
		return false
	}
	return g.Name == o.Name && g.ConsumeEnable == o.ConsumeEnable && g.ConsumeFromMinEnable == o.ConsumeFromMinEnable &&
		g.ConsumeBroadcastEnable == o.ConsumeBroadcastEnable && g.ConsumeMessageOrderly == o.ConsumeMessageOrderly &&
		g.RetryQueues == o.RetryQueues && g.RetryMax == o.RetryMax && g.BrokerID == o.BrokerID &&
		g.SlowBrokerID == o.SlowBrokerID && g.NotifyConsumerIDsChanged == o.NotifyConsumerIDsChanged &&
		g.SysFlag == o.SysFlag && g.ConsumeTimeoutMinutes == o.ConsumeTimeoutMinutes && g.RetryPolicy == o.RetryPolicy
}

// Clone returns a copy that may be changed.
func (g *GroupConfig) Clone() *GroupConfig {
	c := *g
	c.Attributes = maps.Clone(g.Attributes)
	c.Unknown = slices.Clone(g.Unknown)
	return &c
}

// Validate checks what a change may put into the table.
func (g *GroupConfig) Validate() error {
	if err := ValidateGroupName(g.Name); err != nil {
		return err
	}
	return g.validateFields()
}

// validateFields checks all but the name.
func (g *GroupConfig) validateFields() error {
	for _, n := range []struct {
		field string
		n     int64
		low   int64
	}{
		{"retry_queues", int64(g.RetryQueues), 0},
		{"retry_max", int64(g.RetryMax), -1},
		{"broker_id", g.BrokerID, 0},
		{"slow_broker_id", g.SlowBrokerID, 0},
		{"consume_timeout_minutes", int64(g.ConsumeTimeoutMinutes), 1},
	} {
		if n.n < n.low {
			return ErrField.WithField(n.field).WithMsg("%d", n.n).WithRemedy("use %d or more", n.low)
		}
	}
	if err := validateAttributes(g.Attributes); err != nil {
		return err
	}
	if err := validateUnknown(g.Unknown, groupProperties); err != nil {
		return err
	}
	if !fastjson.Compact(g.RetryPolicy) || len(g.RetryPolicy) > maxAttributes {
		return ErrField.WithField("retry_policy").WithMsg("the policy is not compact JSON").WithRemedy("use %s", DefaultRetryPolicy)
	}
	return nil
}
