package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

// adopted is the story of scenarios g and h: a RocketMQ slave that knows a name server and nothing else finds a Tandem master.
type adopted struct {
	*stage
	q          *rocketmq.RocketMQ
	nameServer string
	names      *process
	tandem     *node
	config     *configNode
	slave      *broker
	left       []string // messages behind the committed offsets, as RocketMQ should show them
}

// Messages of each of so many queues; of these the group has taken so many.
const (
	adoptedQueues = 4
	adoptedPuts   = 400
	adoptedTaken  = 150
	// adoptedGroup is the group of peer/Client.java.
	adoptedGroup = "interop-consumer"
)

func adoptVersion(version string) func(context.Context, *stage) (string, error) {
	return func(ctx context.Context, s *stage) (string, error) {
		q, err := s.rocketmq(ctx, version)
		if err != nil {
			return "", err
		}
		a := &adopted{stage: s, q: q}
		for _, act := range []func(context.Context) error{a.lead, a.fill, a.adopt, a.end} {
			if err := act(ctx); err != nil {
				return "", err
			}
		}
		return a.promote(ctx)
	}
}

// lead starts a name server, and a Tandem storage and config sync service as master.
func (a *adopted) lead(ctx context.Context) (err error) {
	if a.names, a.nameServer, err = a.stage.nameServer(ctx, a.q); err != nil {
		return err
	}
	a.tandem, err = a.stage.tandem(ctx, filepath.Join(a.dir, "tandem"),
		fileSizes, "brokerRole: ASYNC_MASTER", "brokerClusterName: tandem", "ha: {legacySlaves: true}")
	if err != nil {
		return err
	}
	a.config, err = a.configsync(a.tandem, func(remoting string) []string {
		return []string{
			"brokerClusterName: tandem",
			fmt.Sprintf("remoting: {listen: %q, haServerAddr: %q, nameServers: [%q]}", remoting, a.tandem.haAddr, a.nameServer),
		}
	})
	if err != nil {
		return err
	}
	return await(ctx, "Tandem's config sync service opening", func() (bool, error) {
		st, err := configsyncv1.NewConfigAdminServiceClient(a.config.conn).Status(ctx, &configsyncv1.StatusRequest{}, grpc.WaitForReady(true))
		return st.GetOpen(), err
	})
}

// fill makes a topic, a group and messages, of which the group has taken some.
func (a *adopted) fill(ctx context.Context) error {
	_, err := configsyncv1.NewTopicServiceClient(a.config.conn).CreateTopic(ctx, &configsyncv1.CreateTopicRequest{
		Topic: &configsyncv1.Topic{Name: newTopic, ReadQueues: adoptedQueues, WriteQueues: adoptedQueues},
	})
	if err != nil {
		return err
	}
	_, err = configsyncv1.NewSubscriptionGroupServiceClient(a.config.conn).CreateSubscriptionGroup(ctx, &configsyncv1.CreateSubscriptionGroupRequest{
		Group: &configsyncv1.SubscriptionGroup{Name: adoptedGroup, RetryMaxTimes: new(int32(7))},
	})
	if err != nil {
		return err
	}
	if err := a.tandem.await(ctx, "opening", func(st *client.NodeStatus) bool { return st.GetOpen() }); err != nil {
		return err
	}
	producer := a.tandem.Producer(client.ProducerOptions{})
	for i := range adoptedQueues * adoptedPuts {
		m := message(i, newTopic)
		queue := int32(i % adoptedQueues)
		m.QueueId = &queue
		r, err := producer.Put(ctx, m)
		if err != nil {
			return err
		}
		if r.GetStatus() != client.StatusOK {
			return fmt.Errorf("put %d is answered %s", i, client.StatusName(r.GetStatus()))
		}
		if r.GetQueueOffset() >= adoptedTaken {
			a.left = append(a.left, lineOf(m, r))
		}
	}
	offsets := configsyncv1.NewOffsetServiceClient(a.config.conn)
	for queue := range int32(adoptedQueues) {
		_, err := offsets.Commit(ctx, &configsyncv1.CommitRequest{
			Offset: &configsyncv1.ConsumerOffset{Group: adoptedGroup, Topic: newTopic, QueueId: queue, Offset: adoptedTaken}, Durable: true,
		})
		if err != nil {
			return err
		}
	}
	_, err = offsets.CommitDelay(ctx, &configsyncv1.CommitDelayRequest{Offsets: []*configsyncv1.DelayOffset{{Level: 1}}})
	say("a Tandem pair leads and is registered; its topic has %d messages, its group has taken %d", adoptedQueues*adoptedPuts, adoptedQueues*adoptedTaken)
	return err
}

// adopt starts a RocketMQ slave that knows the name server alone, and waits until it has all.
func (a *adopted) adopt(ctx context.Context) (err error) {
	a.slave, err = a.broker(ctx, a.q, "slave", filepath.Join(a.dir, "slave", "store"), "brokerId=1", "brokerRole=SLAVE", "namesrvAddr="+a.nameServer)
	if err != nil {
		return err
	}
	if err := a.inSync(ctx, a.tandem); err != nil {
		return err
	}
	say("a RocketMQ %s slave found it by the name server and has its log", a.q.Version)
	var but []string
	if strings.HasPrefix(a.q.Version, "4.") {
		but = newFields
	}
	all, err := sameTables(ctx, "the slave's tables being Tandem's", a.tandem.store, a.slave.store, but)
	if err != nil {
		return err
	}
	say("and its four tables: %s", all.count())
	return a.routed(ctx)
}

// routed asks the name server for the topic as a client does: each registration has all topics.
func (a *adopted) routed(ctx context.Context) error {
	c, err := a.rocketClient(ctx, a.q, a.nameServer)
	if err != nil {
		return err
	}
	addr, _, err := c.Ask(ctx, "route %s", newTopic)
	if err != nil {
		return err
	}
	if addr != a.config.remoting {
		return fmt.Errorf("the name server's route of %s leads to %q, due is %s", newTopic, addr, a.config.remoting)
	}
	say("the name server has a route of its topic")
	return c.kill()
}

// end stops all.
func (a *adopted) end(ctx context.Context) error {
	for _, stop := range []func(context.Context) error{a.slave.stop, a.config.stop, a.tandem.stop, a.names.stop} {
		if err := stop(ctx); err != nil {
			return err
		}
	}
	all, err := sameStores(a.tandem.store, a.slave.store)
	if err != nil {
		return err
	}
	say("both stopped, the slave's files are Tandem's: %v", all)
	return nil
}

// promote starts a broker as master on the slave's folder: the group goes on where it was.
func (a *adopted) promote(ctx context.Context) (string, error) {
	_, nameServer, err := a.stage.nameServer(ctx, a.q)
	if err != nil {
		return "", err
	}
	if _, err := a.broker(ctx, a.q, "promoted", a.slave.store, "brokerId=0", "brokerRole=ASYNC_MASTER", "namesrvAddr="+nameServer); err != nil {
		return "", err
	}
	c, err := a.rocketClient(ctx, a.q, nameServer)
	if err != nil {
		return "", err
	}
	_, got, err := c.Ask(ctx, "receive %d %s", len(a.left), newTopic)
	if err != nil {
		return "", err
	}
	if err := sameLines(slices.Clone(a.left), got); err != nil {
		return "", fmt.Errorf("RocketMQ %s's consumer, on the slave's folder: %w", a.q.Version, err)
	}
	return fmt.Sprintf("a RocketMQ %s slave that knew a name server alone has log and tables of a Tandem pair; "+
		"a broker on its folder serves RocketMQ's consumer the %d messages behind the committed offsets, each once", a.q.Version, len(got)), nil
}
