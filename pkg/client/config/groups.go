package config

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Groups are the table of subscription groups. All methods may be called concurrently.
type Groups struct{ c *Client }

// Groups returns the table of subscription groups.
func (c *Client) Groups() *Groups { return &Groups{c} }

// Create adds a group; ifVersion is the version that the table must have, nil: any.
func (g *Groups) Create(ctx context.Context, group *Group, ifVersion *Version) (*Group, error) {
	req := &configsyncv1.CreateSubscriptionGroupRequest{Group: group, IfTableVersion: ifVersion}
	var resp *configsyncv1.CreateSubscriptionGroupResponse
	err := g.c.change(ctx, false, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
		resp, err = n.groups.CreateSubscriptionGroup(ctx, req, o...)
		return err
	})
	return resp.GetGroup(), err
}

// Update changes the named fields of a group, or those that are set where none is named. allowMissing creates it where there is none.
func (g *Groups) Update(ctx context.Context, group *Group, fields []string, allowMissing bool, c Condition) (*Group, error) {
	req := &configsyncv1.UpdateSubscriptionGroupRequest{Group: group, AllowMissing: allowMissing, IfEtag: c.Etag, IfTableVersion: c.Version}
	if len(fields) > 0 {
		req.UpdateMask = &fieldmaskpb.FieldMask{Paths: fields}
	}
	var resp *configsyncv1.UpdateSubscriptionGroupResponse
	err := g.c.change(ctx, false, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
		resp, err = n.groups.UpdateSubscriptionGroup(ctx, req, o...)
		return err
	})
	return resp.GetGroup(), err
}

// Delete removes a group.
func (g *Groups) Delete(ctx context.Context, name string, c Condition) error {
	req := &configsyncv1.DeleteSubscriptionGroupRequest{Name: name, IfEtag: c.Etag, IfTableVersion: c.Version}
	return g.c.change(ctx, false, func(ctx context.Context, n *node, o ...grpc.CallOption) error {
		_, err := n.groups.DeleteSubscriptionGroup(ctx, req, o...)
		return err
	})
}

// Get returns a group.
func (g *Groups) Get(ctx context.Context, name string) (*Group, error) {
	var resp *configsyncv1.GetSubscriptionGroupResponse
	err := g.c.read(ctx, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
		resp, err = n.groups.GetSubscriptionGroup(ctx, &configsyncv1.GetSubscriptionGroupRequest{Name: name}, o...)
		return err
	})
	return resp.GetGroup(), err
}

// List calls f with each group whose name begins with prefix; as Topics.List.
func (g *Groups) List(ctx context.Context, prefix string, f func(*Group) error) error {
	return pages(func(token string) ([]*Group, string, error) {
		var resp *configsyncv1.ListSubscriptionGroupsResponse
		err := g.c.read(ctx, func(ctx context.Context, n *node, o ...grpc.CallOption) (err error) {
			resp, err = n.groups.ListSubscriptionGroups(ctx, &configsyncv1.ListSubscriptionGroupsRequest{Prefix: prefix, PageToken: token}, o...)
			return err
		})
		return resp.GetGroups(), resp.GetNextPageToken(), err
	}, f)
}

// pages calls f with all that the pages of a list hold.
func pages[E any](page func(token string) ([]E, string, error), f func(E) error) error {
	for token := ""; ; {
		es, next, err := page(token)
		if err != nil {
			return err
		}
		for _, e := range es {
			if err := f(e); err != nil {
				return err
			}
		}
		switch next {
		case "":
			return nil
		case token:
			return errdefs.New(errdefs.Internal, "PAGE_TOKEN_REPEATED", "the list does not come to an end")
		}
		token = next
	}
}
