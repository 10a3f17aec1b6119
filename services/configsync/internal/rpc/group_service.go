package rpc

import (
	"context"
	"maps"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// Groups are the table of subscription groups. What is answered with nil is saved and published.
type Groups interface {
	Snapshot(k entry.Kind) *table.Table
	PutGroup(ctx context.Context, g *entry.GroupConfig, c registry.Condition) (table.Entry, error)
	DeleteGroup(ctx context.Context, name string, c registry.Condition) error
}

// Group implements SubscriptionGroupService.
type Group struct {
	configsyncv1.UnimplementedSubscriptionGroupServiceServer

	tables Groups
	role   Role
}

// NewGroup makes the service.
func NewGroup(t Groups, r Role) *Group { return &Group{tables: t, role: r} }

type wireGroup = configsyncv1.SubscriptionGroup

// groupField is a field that needs no check of its own.
func groupField[T any](name string, set func(g *wireGroup) bool, get func(g *wireGroup) T, to func(c *entry.GroupConfig) *T) field[entry.GroupConfig, *wireGroup] {
	return field[entry.GroupConfig, *wireGroup]{name, set, func(c *entry.GroupConfig, g *wireGroup) error {
		*to(c) = get(g)
		return nil
	}}
}

// groupFields as topicFields.
var groupFields = []field[entry.GroupConfig, *wireGroup]{ //nolint:gochecknoglobals // a table
	groupField("consume_enable", func(g *wireGroup) bool { return g.ConsumeEnable != nil }, (*wireGroup).GetConsumeEnable,
		func(c *entry.GroupConfig) *bool { return &c.ConsumeEnable }),
	groupField("consume_from_min_enable", func(g *wireGroup) bool { return g.ConsumeFromMinEnable != nil }, (*wireGroup).GetConsumeFromMinEnable,
		func(c *entry.GroupConfig) *bool { return &c.ConsumeFromMinEnable }),
	groupField("consume_broadcast_enable", func(g *wireGroup) bool { return g.ConsumeBroadcastEnable != nil }, (*wireGroup).GetConsumeBroadcastEnable,
		func(c *entry.GroupConfig) *bool { return &c.ConsumeBroadcastEnable }),
	groupField("notify_consumer_ids_changed_enable", func(g *wireGroup) bool { return g.NotifyConsumerIdsChangedEnable != nil }, (*wireGroup).GetNotifyConsumerIdsChangedEnable,
		func(c *entry.GroupConfig) *bool { return &c.NotifyConsumerIDsChanged }),
	groupField("retry_queues", func(g *wireGroup) bool { return g.RetryQueues != nil }, (*wireGroup).GetRetryQueues,
		func(c *entry.GroupConfig) *int32 { return &c.RetryQueues }),
	groupField("retry_max_times", func(g *wireGroup) bool { return g.RetryMaxTimes != nil }, (*wireGroup).GetRetryMaxTimes,
		func(c *entry.GroupConfig) *int32 { return &c.RetryMax }),
	groupField("broker_id", func(g *wireGroup) bool { return g.GetBrokerId() != 0 }, (*wireGroup).GetBrokerId,
		func(c *entry.GroupConfig) *int64 { return &c.BrokerID }),
	groupField("which_broker_when_consume_slowly", func(g *wireGroup) bool { return g.WhichBrokerWhenConsumeSlowly != nil }, (*wireGroup).GetWhichBrokerWhenConsumeSlowly,
		func(c *entry.GroupConfig) *int64 { return &c.SlowBrokerID }),
	groupField("consume_message_orderly", (*wireGroup).GetConsumeMessageOrderly, (*wireGroup).GetConsumeMessageOrderly,
		func(c *entry.GroupConfig) *bool { return &c.ConsumeMessageOrderly }),
	groupField("group_sys_flag", func(g *wireGroup) bool { return g.GetGroupSysFlag() != 0 }, (*wireGroup).GetGroupSysFlag,
		func(c *entry.GroupConfig) *int32 { return &c.SysFlag }),
	groupField("consume_timeout_minutes", func(g *wireGroup) bool { return g.ConsumeTimeoutMinutes != nil }, (*wireGroup).GetConsumeTimeoutMinutes,
		func(c *entry.GroupConfig) *int32 { return &c.ConsumeTimeoutMinutes }),
	groupField("attributes", func(g *wireGroup) bool { return len(g.GetAttributes()) > 0 },
		func(g *wireGroup) map[string]string { return maps.Clone(g.GetAttributes()) },
		func(c *entry.GroupConfig) *map[string]string { return &c.Attributes }),
	{"retry_policy_json", func(g *wireGroup) bool { return g.GetRetryPolicyJson() != "" }, func(c *entry.GroupConfig, g *wireGroup) error {
		policy, err := compactObject(g.GetRetryPolicyJson())
		if err != nil {
			return errdefs.Invalid("retry_policy_json", "is no JSON object: %v", err)
		}
		c.RetryPolicy = policy
		return nil
	}},
}

// CreateSubscriptionGroup implements SubscriptionGroupService.
func (s *Group) CreateSubscriptionGroup(ctx context.Context, req *configsyncv1.CreateSubscriptionGroupRequest) (*configsyncv1.CreateSubscriptionGroupResponse, error) {
	c := condition(0, req.GetIfTableVersion())
	c.Create = true
	e, err := s.put(ctx, req.GetGroup(), nil, nil, c)
	if err != nil {
		return nil, err
	}
	return &configsyncv1.CreateSubscriptionGroupResponse{Group: groupOf(e), TableVersion: s.version()}, nil
}

// UpdateSubscriptionGroup implements SubscriptionGroupService.
func (s *Group) UpdateSubscriptionGroup(ctx context.Context, req *configsyncv1.UpdateSubscriptionGroupRequest) (*configsyncv1.UpdateSubscriptionGroupResponse, error) {
	asked := condition(req.GetIfEtag(), req.GetIfTableVersion())
	e, err := update(asked, func() (table.Entry, bool, error) {
		e, ok := s.tables.Snapshot(entry.Groups).Get(req.GetGroup().GetName())
		if !ok && !req.GetAllowMissing() {
			return e, false, registry.ErrNotFound.With("group", req.GetGroup().GetName()).WithField("group.name")
		}
		return e, ok, nil
	}, func(old table.Entry, c registry.Condition) (table.Entry, error) {
		have, _ := old.Value.(*entry.GroupConfig)
		return s.put(ctx, req.GetGroup(), have, req.GetUpdateMask().GetPaths(), c)
	})
	if err != nil {
		return nil, err
	}
	return &configsyncv1.UpdateSubscriptionGroupResponse{Group: groupOf(e), TableVersion: s.version()}, nil
}

// put makes a config of a request, over the one that is there, and puts it in.
func (s *Group) put(ctx context.Context, g *wireGroup, have *entry.GroupConfig, paths []string, c registry.Condition) (table.Entry, error) {
	if g == nil {
		return table.Entry{}, errdefs.Invalid("group", "is missing")
	}
	next := entry.NewGroup(g.GetName())
	if have != nil {
		next = have.Clone()
	}
	if err := apply(groupFields, next, g, paths); err != nil {
		return table.Entry{}, underField("group", err)
	}
	if err := s.role.Enter(); err != nil {
		return table.Entry{}, err
	}
	defer s.role.Leave()
	e, err := s.tables.PutGroup(ctx, next, c)
	return e, underField("group", err)
}

// DeleteSubscriptionGroup implements SubscriptionGroupService.
func (s *Group) DeleteSubscriptionGroup(ctx context.Context, req *configsyncv1.DeleteSubscriptionGroupRequest) (*configsyncv1.DeleteSubscriptionGroupResponse, error) {
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	if err := s.tables.DeleteGroup(ctx, req.GetName(), condition(req.GetIfEtag(), req.GetIfTableVersion())); err != nil {
		return nil, err
	}
	return &configsyncv1.DeleteSubscriptionGroupResponse{TableVersion: s.version()}, nil
}

// GetSubscriptionGroup implements SubscriptionGroupService.
func (s *Group) GetSubscriptionGroup(_ context.Context, req *configsyncv1.GetSubscriptionGroupRequest) (*configsyncv1.GetSubscriptionGroupResponse, error) {
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	if req.GetName() == "" {
		return nil, errdefs.Invalid("name", "is empty")
	}
	t := s.tables.Snapshot(entry.Groups)
	e, ok := t.Get(req.GetName())
	if !ok {
		return nil, registry.ErrNotFound.With("group", req.GetName()).WithField("name")
	}
	return &configsyncv1.GetSubscriptionGroupResponse{Group: groupOf(e), TableVersion: wire.Version(t.Version())}, nil
}

// ListSubscriptionGroups implements SubscriptionGroupService.
func (s *Group) ListSubscriptionGroups(_ context.Context, req *configsyncv1.ListSubscriptionGroupsRequest) (*configsyncv1.ListSubscriptionGroupsResponse, error) {
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	t := s.tables.Snapshot(entry.Groups)
	groups, next, err := page(t, req.GetPrefix(), req.GetPageToken(), req.GetPageSize(), groupOf)
	if err != nil {
		return nil, err
	}
	return &configsyncv1.ListSubscriptionGroupsResponse{Groups: groups, NextPageToken: next, TableVersion: wire.Version(t.Version())}, nil
}

func (s *Group) version() *configsyncv1.DataVersion {
	return wire.Version(s.tables.Snapshot(entry.Groups).Version())
}
