package rpc

import (
	"maps"
	"strings"

	"google.golang.org/protobuf/proto"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/rpc/paging"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// page returns the entries of a list behind a token in their wire form, and the token of the next page.
func page[M proto.Message](t *table.Table, prefix, token string, size int32, of func(table.Entry) M) ([]M, string, error) {
	limit, err := paging.Size(size)
	if err != nil {
		return nil, "", err
	}
	after, err := paging.Parse(token)
	if err != nil {
		return nil, "", err
	}
	var out []M
	bytes := 0
	for e := range t.Prefix(prefix, after) {
		if len(out) == limit || bytes >= paging.MaxBytes {
			return out, paging.Token(after), nil
		}
		m := of(e)
		out, bytes, after = append(out, m), bytes+proto.Size(m), e.Key
	}
	return out, "", nil
}

// underField prefixes the field of an error with the field of the request that it lies in.
func underField(field string, err error) error {
	e := errdefs.As(err)
	if e == nil || e.Field == "" || e.Class != errdefs.InvalidArgument || strings.HasPrefix(e.Field, field) || e.Field == "update_mask" {
		return err
	}
	return e.WithField(field + "." + e.Field)
}

// condition is what a request says must hold.
func condition(etag uint64, v *configsyncv1.DataVersion) registry.Condition {
	var c registry.Condition
	if etag != 0 {
		c.Etag = &etag
	}
	if v != nil {
		version := wire.VersionOf(v)
		c.Version = &version
	}
	return c
}

// unknownJSON is the JSON object of fields that nobody knows.
func unknownJSON(fields []entry.Field) string {
	if len(fields) == 0 {
		return ""
	}
	var b strings.Builder
	for i, f := range fields {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(quoted(f.Name))
		b.WriteByte(':')
		b.WriteString(f.Raw)
	}
	b.WriteByte('}')
	return b.String()
}

var filterTypes = map[configsyncv1.TopicFilterType]string{ //nolint:gochecknoglobals // a table
	configsyncv1.TopicFilterType_TOPIC_FILTER_TYPE_SINGLE_TAG: entry.SingleTag,
	configsyncv1.TopicFilterType_TOPIC_FILTER_TYPE_MULTI_TAG:  entry.MultiTag,
}

// topicOf is the wire form of a topic.
func topicOf(e table.Entry) *configsyncv1.Topic {
	c, ok := e.Value.(*entry.TopicConfig)
	if !ok {
		return nil
	}
	perm := int32(c.Perm)
	t := &configsyncv1.Topic{
		Name: c.Name, ReadQueues: c.ReadQueues, WriteQueues: c.WriteQueues, Perm: &perm, SysFlag: c.SysFlag, Order: c.Order,
		Attributes: maps.Clone(c.Attributes), UnknownJson: unknownJSON(c.Unknown), Etag: e.Etag(),
		FilterType: configsyncv1.TopicFilterType_TOPIC_FILTER_TYPE_SINGLE_TAG,
	}
	if c.FilterType == entry.MultiTag {
		t.FilterType = configsyncv1.TopicFilterType_TOPIC_FILTER_TYPE_MULTI_TAG
	}
	return t
}

// groupOf is the wire form of a group.
func groupOf(e table.Entry) *configsyncv1.SubscriptionGroup {
	g, ok := e.Value.(*entry.GroupConfig)
	if !ok {
		return nil
	}
	c := *g
	return &configsyncv1.SubscriptionGroup{
		Name: c.Name, ConsumeEnable: &c.ConsumeEnable, ConsumeFromMinEnable: &c.ConsumeFromMinEnable,
		ConsumeBroadcastEnable: &c.ConsumeBroadcastEnable, NotifyConsumerIdsChangedEnable: &c.NotifyConsumerIDsChanged,
		RetryQueues: &c.RetryQueues, RetryMaxTimes: &c.RetryMax, BrokerId: c.BrokerID, WhichBrokerWhenConsumeSlowly: &c.SlowBrokerID,
		ConsumeMessageOrderly: c.ConsumeMessageOrderly, GroupSysFlag: c.SysFlag, ConsumeTimeoutMinutes: &c.ConsumeTimeoutMinutes,
		Attributes: maps.Clone(c.Attributes), RetryPolicyJson: c.RetryPolicy, UnknownJson: unknownJSON(c.Unknown), Etag: e.Etag(),
	}
}
