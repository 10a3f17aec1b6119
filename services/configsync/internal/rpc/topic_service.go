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

// Topics are the table of topics. What is answered with nil is saved and published.
type Topics interface {
	Snapshot(k entry.Kind) *table.Table
	PutTopic(ctx context.Context, t *entry.TopicConfig, c registry.Condition) (table.Entry, error)
	DeleteTopic(ctx context.Context, name string, c registry.Condition) error
}

// Topic implements TopicService.
type Topic struct {
	configsyncv1.UnimplementedTopicServiceServer

	tables Topics
	role   Role
}

// NewTopic makes the service.
func NewTopic(t Topics, r Role) *Topic { return &Topic{tables: t, role: r} }

// topicFields set a field of a config from a request, under the names of an update mask. set says whether the request has it.
var topicFields = []field[entry.TopicConfig, *configsyncv1.Topic]{ //nolint:gochecknoglobals // a table
	{"read_queues", func(t *configsyncv1.Topic) bool { return t.GetReadQueues() != 0 }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		c.ReadQueues = t.GetReadQueues()
		return nil
	}},
	{"write_queues", func(t *configsyncv1.Topic) bool { return t.GetWriteQueues() != 0 }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		c.WriteQueues = t.GetWriteQueues()
		return nil
	}},
	{"perm", func(t *configsyncv1.Topic) bool { return t.Perm != nil }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		c.Perm = entry.Perm(t.GetPerm())
		return nil
	}},
	{"filter_type", func(t *configsyncv1.Topic) bool { return t.GetFilterType() != 0 }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		name, ok := filterTypes[t.GetFilterType()]
		if !ok {
			return errdefs.Invalid("filter_type", "%d is no filter type", t.GetFilterType()).WithRemedy("use SINGLE_TAG or MULTI_TAG")
		}
		c.FilterType = name
		return nil
	}},
	{"sys_flag", func(t *configsyncv1.Topic) bool { return t.GetSysFlag() != 0 }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		c.SysFlag = t.GetSysFlag()
		return nil
	}},
	{"order", func(t *configsyncv1.Topic) bool { return t.GetOrder() }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		c.Order = t.GetOrder()
		return nil
	}},
	{"attributes", func(t *configsyncv1.Topic) bool { return len(t.GetAttributes()) > 0 }, func(c *entry.TopicConfig, t *configsyncv1.Topic) error {
		c.Attributes = maps.Clone(t.GetAttributes())
		return nil
	}},
}

// CreateTopic implements TopicService.
func (s *Topic) CreateTopic(ctx context.Context, req *configsyncv1.CreateTopicRequest) (*configsyncv1.CreateTopicResponse, error) {
	c := condition(0, req.GetIfTableVersion())
	c.Create = true
	e, err := s.put(ctx, req.GetTopic(), nil, nil, c)
	if err != nil {
		return nil, err
	}
	return &configsyncv1.CreateTopicResponse{Topic: topicOf(e), TableVersion: s.version()}, nil
}

// UpdateTopic implements TopicService.
func (s *Topic) UpdateTopic(ctx context.Context, req *configsyncv1.UpdateTopicRequest) (*configsyncv1.UpdateTopicResponse, error) {
	asked := condition(req.GetIfEtag(), req.GetIfTableVersion())
	e, err := update(asked, func() (table.Entry, bool, error) {
		e, ok := s.tables.Snapshot(entry.Topics).Get(req.GetTopic().GetName())
		if !ok && !req.GetAllowMissing() {
			return e, false, registry.ErrNotFound.With("topic", req.GetTopic().GetName()).WithField("topic.name")
		}
		return e, ok, nil
	}, func(old table.Entry, c registry.Condition) (table.Entry, error) {
		have, _ := old.Value.(*entry.TopicConfig)
		return s.put(ctx, req.GetTopic(), have, req.GetUpdateMask().GetPaths(), c)
	})
	if err != nil {
		return nil, err
	}
	return &configsyncv1.UpdateTopicResponse{Topic: topicOf(e), TableVersion: s.version()}, nil
}

// put makes a config of a request, over the one that is there, and puts it in.
func (s *Topic) put(ctx context.Context, t *configsyncv1.Topic, have *entry.TopicConfig, paths []string, c registry.Condition) (table.Entry, error) {
	if t == nil {
		return table.Entry{}, errdefs.Invalid("topic", "is missing")
	}
	next := entry.NewTopic(t.GetName())
	if have != nil {
		next = have.Clone()
	}
	if err := apply(topicFields, next, t, paths); err != nil {
		return table.Entry{}, underField("topic", err)
	}
	if err := s.role.Enter(); err != nil {
		return table.Entry{}, err
	}
	defer s.role.Leave()
	e, err := s.tables.PutTopic(ctx, next, c)
	return e, underField("topic", err)
}

// DeleteTopic implements TopicService.
func (s *Topic) DeleteTopic(ctx context.Context, req *configsyncv1.DeleteTopicRequest) (*configsyncv1.DeleteTopicResponse, error) {
	if err := s.role.Enter(); err != nil {
		return nil, err
	}
	defer s.role.Leave()
	if err := s.tables.DeleteTopic(ctx, req.GetName(), condition(req.GetIfEtag(), req.GetIfTableVersion())); err != nil {
		return nil, err
	}
	return &configsyncv1.DeleteTopicResponse{TableVersion: s.version()}, nil
}

// GetTopic implements TopicService.
func (s *Topic) GetTopic(_ context.Context, req *configsyncv1.GetTopicRequest) (*configsyncv1.GetTopicResponse, error) {
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	if req.GetName() == "" {
		return nil, errdefs.Invalid("name", "is empty")
	}
	t := s.tables.Snapshot(entry.Topics)
	e, ok := t.Get(req.GetName())
	if !ok {
		return nil, registry.ErrNotFound.With("topic", req.GetName()).WithField("name")
	}
	return &configsyncv1.GetTopicResponse{Topic: topicOf(e), TableVersion: wire.Version(t.Version())}, nil
}

// ListTopics implements TopicService.
func (s *Topic) ListTopics(_ context.Context, req *configsyncv1.ListTopicsRequest) (*configsyncv1.ListTopicsResponse, error) {
	if err := s.role.Serves(); err != nil {
		return nil, err
	}
	t := s.tables.Snapshot(entry.Topics)
	topics, next, err := page(t, req.GetPrefix(), req.GetPageToken(), req.GetPageSize(), topicOf)
	if err != nil {
		return nil, err
	}
	return &configsyncv1.ListTopicsResponse{Topics: topics, NextPageToken: next, TableVersion: wire.Version(t.Version())}, nil
}

func (s *Topic) version() *configsyncv1.DataVersion {
	return wire.Version(s.tables.Snapshot(entry.Topics).Version())
}
