package config

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
)

// Topics are the table of topics. All methods may be called concurrently.
type Topics struct{ c *Client }

// Topics returns the table of topics.
func (c *Client) Topics() *Topics { return &Topics{c} }

// Condition is what must hold for a change; the zero value is nothing.
type Condition struct {
	// Etag that the entry must have; 0: any.
	Etag uint64
	// Version that the table must have; nil: any.
	Version *Version
}

// Create adds a topic; ifVersion is the version that the table must have, nil: any.
func (t *Topics) Create(ctx context.Context, topic *Topic, ifVersion *Version) (*Topic, error) {
	var resp *configsyncv1.CreateTopicResponse
	err := t.c.change(ctx, false, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
		resp, err = n.topics.CreateTopic(ctx, &configsyncv1.CreateTopicRequest{Topic: topic, IfTableVersion: ifVersion}, o...)
		return err
	})
	return resp.GetTopic(), err
}

// Update changes the named fields of a topic, or those that are set where none is named. allowMissing creates it where there is none.
func (t *Topics) Update(ctx context.Context, topic *Topic, fields []string, allowMissing bool, c Condition) (*Topic, error) {
	req := &configsyncv1.UpdateTopicRequest{Topic: topic, AllowMissing: allowMissing, IfEtag: c.Etag, IfTableVersion: c.Version}
	if len(fields) > 0 {
		req.UpdateMask = &fieldmaskpb.FieldMask{Paths: fields}
	}
	var resp *configsyncv1.UpdateTopicResponse
	err := t.c.change(ctx, false, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
		resp, err = n.topics.UpdateTopic(ctx, req, o...)
		return err
	})
	return resp.GetTopic(), err
}

// Delete removes a topic.
func (t *Topics) Delete(ctx context.Context, name string, c Condition) error {
	return t.c.change(ctx, false, func(ctx context.Context, n *node, o ...grpc.CallOption) error {
		_, err := n.topics.DeleteTopic(ctx, &configsyncv1.DeleteTopicRequest{Name: name, IfEtag: c.Etag, IfTableVersion: c.Version}, o...)
		return err
	})
}

// Get returns a topic.
func (t *Topics) Get(ctx context.Context, name string) (*Topic, error) {
	var resp *configsyncv1.GetTopicResponse
	err := t.c.read(ctx, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
		resp, err = n.topics.GetTopic(ctx, &configsyncv1.GetTopicRequest{Name: name}, o...)
		return err
	})
	return resp.GetTopic(), err
}

// List calls f with each topic whose name begins with prefix, by name, until f returns an error. It reads page by page: what changes
// meanwhile may be seen or not.
func (t *Topics) List(ctx context.Context, prefix string, f func(*Topic) error) error {
	return pages(func(token string) ([]*Topic, string, error) {
		var resp *configsyncv1.ListTopicsResponse
		err := t.c.read(ctx, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
			resp, err = n.topics.ListTopics(ctx, &configsyncv1.ListTopicsRequest{Prefix: prefix, PageToken: token}, o...)
			return err
		})
		return resp.GetTopics(), resp.GetNextPageToken(), err
	}, f)
}
