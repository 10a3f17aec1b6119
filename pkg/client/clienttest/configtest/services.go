package configtest

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// entry is a topic or a subscription group.
type entry interface {
	proto.Message
	GetName() string
	GetEtag() uint64
}

// write puts an entry into its table: over `have` where there is one. Without mask what is set in it counts.
func write[E entry](table map[string]E, e E, create, update bool, ifEtag uint64, mask []string, stamp func(E, uint64)) (E, error) {
	have, ok := table[e.GetName()]
	var none E
	switch {
	case e.GetName() == "":
		return none, errdefs.Invalid("name", "is empty")
	case ok && !update:
		return none, errExists
	case !ok && !create:
		return none, errNotFound
	case ifEtag != 0 && have.GetEtag() != ifEtag:
		return none, errPrecondition
	}
	next, _ := proto.Clone(e).(E) // of its own type
	if ok {
		next, _ = proto.Clone(have).(E)
		from, to := e.ProtoReflect(), next.ProtoReflect()
		for i := range from.Descriptor().Fields().Len() {
			f := from.Descriptor().Fields().Get(i)
			if slices.Contains(mask, string(f.Name())) || len(mask) == 0 && from.Has(f) {
				if to.Clear(f); from.Has(f) {
					to.Set(f, from.Get(f))
				}
			}
		}
	}
	stamp(next, 0)
	stamp(next, etag(next))
	table[e.GetName()] = next
	return next, nil
}

func list[E any](table map[string]E, prefix, token string, size int32) (es []E, next string) {
	names := slices.Sorted(maps.Keys(table))
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) })
	cut, next := page(names, token, size)
	for _, n := range cut {
		es = append(es, table[n])
	}
	return es, next
}

func remove[E entry](table map[string]E, name string, ifEtag uint64) error {
	have, ok := table[name]
	switch {
	case !ok:
		return errNotFound
	case ifEtag != 0 && have.GetEtag() != ifEtag:
		return errPrecondition
	}
	delete(table, name)
	return nil
}

func stampTopic(t *configsyncv1.Topic, etag uint64) { t.Etag = etag }

func stampGroup(g *configsyncv1.SubscriptionGroup, etag uint64) { g.Etag = etag }

// changing calls f under the lock where the node leads.
func changing[R any](n *Node, f func(g *Group) (R, error)) (R, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	if err := n.leads(); err != nil {
		var none R
		return none, err
	}
	return f(n.group)
}

// CreateTopic implements TopicService.
func (n *Node) CreateTopic(_ context.Context, req *configsyncv1.CreateTopicRequest) (*configsyncv1.CreateTopicResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.CreateTopicResponse, error) {
		t := req.GetTopic()
		if t.GetReadQueues() == 0 {
			t.ReadQueues, t.WriteQueues = 16, 16
		}
		if t.Perm == nil {
			t.Perm = new(int32(6))
		}
		t, err := write(g.topics, t, true, false, 0, nil, stampTopic)
		return &configsyncv1.CreateTopicResponse{Topic: t}, err
	})
}

// UpdateTopic implements TopicService.
func (n *Node) UpdateTopic(_ context.Context, req *configsyncv1.UpdateTopicRequest) (*configsyncv1.UpdateTopicResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.UpdateTopicResponse, error) {
		t, err := write(g.topics, req.GetTopic(), req.GetAllowMissing(), true, req.GetIfEtag(), req.GetUpdateMask().GetPaths(), stampTopic)
		return &configsyncv1.UpdateTopicResponse{Topic: t}, err
	})
}

// DeleteTopic implements TopicService.
func (n *Node) DeleteTopic(_ context.Context, req *configsyncv1.DeleteTopicRequest) (*configsyncv1.DeleteTopicResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.DeleteTopicResponse, error) {
		return &configsyncv1.DeleteTopicResponse{}, remove(g.topics, req.GetName(), req.GetIfEtag())
	})
}

// GetTopic implements TopicService.
func (n *Node) GetTopic(_ context.Context, req *configsyncv1.GetTopicRequest) (*configsyncv1.GetTopicResponse, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	t, ok := n.group.topics[req.GetName()]
	if !ok {
		return nil, errNotFound.With("topic", req.GetName())
	}
	return &configsyncv1.GetTopicResponse{Topic: t}, nil
}

// ListTopics implements TopicService.
func (n *Node) ListTopics(_ context.Context, req *configsyncv1.ListTopicsRequest) (*configsyncv1.ListTopicsResponse, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	ts, next := list(n.group.topics, req.GetPrefix(), req.GetPageToken(), req.GetPageSize())
	return &configsyncv1.ListTopicsResponse{Topics: ts, NextPageToken: next}, nil
}

// CreateSubscriptionGroup implements SubscriptionGroupService.
func (n *Node) CreateSubscriptionGroup(_ context.Context, req *configsyncv1.CreateSubscriptionGroupRequest) (*configsyncv1.CreateSubscriptionGroupResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.CreateSubscriptionGroupResponse, error) {
		s := req.GetGroup()
		if s.ConsumeEnable == nil {
			s.ConsumeEnable = new(true)
		}
		s, err := write(g.groups, s, true, false, 0, nil, stampGroup)
		return &configsyncv1.CreateSubscriptionGroupResponse{Group: s}, err
	})
}

// UpdateSubscriptionGroup implements SubscriptionGroupService.
func (n *Node) UpdateSubscriptionGroup(_ context.Context, req *configsyncv1.UpdateSubscriptionGroupRequest) (*configsyncv1.UpdateSubscriptionGroupResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.UpdateSubscriptionGroupResponse, error) {
		s, err := write(g.groups, req.GetGroup(), req.GetAllowMissing(), true, req.GetIfEtag(), req.GetUpdateMask().GetPaths(), stampGroup)
		return &configsyncv1.UpdateSubscriptionGroupResponse{Group: s}, err
	})
}

// DeleteSubscriptionGroup implements SubscriptionGroupService.
func (n *Node) DeleteSubscriptionGroup(_ context.Context, req *configsyncv1.DeleteSubscriptionGroupRequest) (*configsyncv1.DeleteSubscriptionGroupResponse, error) {
	return changing(n, func(g *Group) (*configsyncv1.DeleteSubscriptionGroupResponse, error) {
		return &configsyncv1.DeleteSubscriptionGroupResponse{}, remove(g.groups, req.GetName(), req.GetIfEtag())
	})
}

// GetSubscriptionGroup implements SubscriptionGroupService.
func (n *Node) GetSubscriptionGroup(_ context.Context, req *configsyncv1.GetSubscriptionGroupRequest) (*configsyncv1.GetSubscriptionGroupResponse, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	s, ok := n.group.groups[req.GetName()]
	if !ok {
		return nil, errNotFound.With("group", req.GetName())
	}
	return &configsyncv1.GetSubscriptionGroupResponse{Group: s}, nil
}

// ListSubscriptionGroups implements SubscriptionGroupService.
func (n *Node) ListSubscriptionGroups(_ context.Context, req *configsyncv1.ListSubscriptionGroupsRequest) (*configsyncv1.ListSubscriptionGroupsResponse, error) {
	n.group.mu.Lock()
	defer n.group.mu.Unlock()
	ss, next := list(n.group.groups, req.GetPrefix(), req.GetPageToken(), req.GetPageSize())
	return &configsyncv1.ListSubscriptionGroupsResponse{Groups: ss, NextPageToken: next}, nil
}

// Status implements ConfigAdminService.
func (n *Node) Status(context.Context, *configsyncv1.StatusRequest) (*configsyncv1.StatusResponse, error) {
	g := n.group
	g.mu.Lock()
	defer g.mu.Unlock()
	leads := g.leader == n.number
	st := &configsyncv1.StatusResponse{
		Cluster: "DefaultCluster", BrokerName: "broker-a", NodeId: int64(n.number), Master: leads, Open: leads, Epoch: g.epoch,
		Address: n.Addr(), Version: "test",
	}
	state := configsyncv1.SyncState_SYNC_STATE_LEADING
	if !leads {
		st.Reason, st.Remedy, state = "SLAVE", "ask the master", configsyncv1.SyncState_SYNC_STATE_IN_SYNC
	}
	if g.leader >= 0 {
		st.MasterAddress = g.Nodes[g.leader].Addr()
	}
	for k := configsyncv1.Kind_KIND_TOPICS; k <= configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS; k++ {
		entries := len(g.topics)
		switch k { //nolint:exhaustive // topics are the default
		case configsyncv1.Kind_KIND_CONSUMER_OFFSETS:
			entries = len(g.offsets)
		case configsyncv1.Kind_KIND_DELAY_OFFSETS:
			entries = len(g.delays)
		case configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS:
			entries = len(g.groups)
		}
		st.Kinds = append(st.Kinds, &configsyncv1.KindStatus{Kind: k, State: state, Version: &configsyncv1.TableVersion{
			Kind: k, Entries: int64(entries), Sum: 0xabc, DataVersion: &configsyncv1.DataVersion{StateVersion: g.epoch, Counter: 7},
		}})
	}
	if g.status != nil {
		g.status(n, st)
	}
	return st, nil
}

// Sync implements ConfigAdminService.
func (n *Node) Sync(ctx context.Context, _ *configsyncv1.SyncRequest) (*configsyncv1.SyncResponse, error) {
	st, err := n.Status(ctx, nil)
	return &configsyncv1.SyncResponse{Kinds: st.GetKinds()}, err
}

// Export implements ConfigAdminService: topics alone have content, one JSON object each.
func (n *Node) Export(req *configsyncv1.ExportRequest, stream grpc.ServerStreamingServer[configsyncv1.ExportResponse]) error {
	names := map[configsyncv1.Kind]string{1: "topics.json", 2: "consumerOffset.json", 3: "delayOffset.json", 4: "subscriptionGroup.json"}
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if len(req.GetKinds()) > 0 && !slices.Contains(req.GetKinds(), k) {
			continue
		}
		data := []byte("{")
		n.group.mu.Lock()
		for _, name := range slices.Sorted(maps.Keys(n.group.topics)) {
			if k == configsyncv1.Kind_KIND_TOPICS {
				b, err := protojson.Marshal(&configsyncv1.Topic{Name: name})
				if err != nil {
					n.group.mu.Unlock()
					return err
				}
				data = append(data, `"`+name+`":`+string(b)...)
			}
		}
		n.group.mu.Unlock()
		for piece := range slices.Chunk(append(data, "}\n"...), 8) {
			if err := stream.Send(&configsyncv1.ExportResponse{Kind: k, FileName: names[k], Data: piece}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Import implements ConfigAdminService: each kind counts one added entry, and the size of its file as unchanged ones.
func (n *Node) Import(stream grpc.ClientStreamingServer[configsyncv1.ImportRequest, configsyncv1.ImportResponse]) error {
	n.group.mu.Lock()
	err := n.leads()
	n.group.mu.Unlock()
	if err != nil {
		return err
	}
	sizes := map[configsyncv1.Kind]int64{}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		sizes[req.GetKind()] += int64(len(req.GetData()))
	}
	resp := &configsyncv1.ImportResponse{}
	for _, k := range slices.Sorted(maps.Keys(sizes)) {
		resp.Results = append(resp.Results, &configsyncv1.ImportResult{Kind: k, Added: 1, Unchanged: sizes[k]})
	}
	return stream.SendAndClose(resp)
}

// Diff implements ConfigAdminService: what SetDiff says.
func (n *Node) Diff(req *configsyncv1.DiffRequest, stream grpc.ServerStreamingServer[configsyncv1.DiffResponse]) error {
	n.group.mu.Lock()
	ds := n.group.diff
	n.group.mu.Unlock()
	resp := &configsyncv1.DiffResponse{}
	for k := configsyncv1.Kind_KIND_TOPICS; k <= configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS; k++ {
		if len(req.GetKinds()) > 0 && !slices.Contains(req.GetKinds(), k) {
			continue
		}
		sum := &configsyncv1.DiffSummary{Kind: k, Same: 3}
		for _, d := range ds {
			if d.GetKind() == k {
				sum.Different++
				resp.Differences = append(resp.Differences, d)
			}
		}
		resp.Summaries = append(resp.Summaries, sum)
	}
	return stream.Send(resp)
}
