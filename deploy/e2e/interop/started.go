package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client"
	configclient "github.com/tandemlog/tandem/pkg/client/config"
)

// started is the story of scenario i: a RocketMQ broker starts on tables that Tandem wrote, and Tandem on what that left.
type started struct {
	*stage
	q          *rocketmq.RocketMQ
	nameServer string
	client     *rocketClient
	store      string
	tandem     *node
	config     *configNode
	api        *configclient.Client
	had        *answers // what Tandem said of its tables
	wrote      tables   // the entries of its files
	left       int      // fields that nobody knows in the files of a running broker
}

const (
	startedPuts   = 40 // messages of each queue that has some
	startedQueues = 4
	madeTopic     = "Made"
	madeGroup     = "made-group"
	importedTopic = "Imported"
	importedGroup = "imported-group"
	droppedTopic  = "Dropped"
	orderlyGroup  = "orderly"
	// importedQueues is what Tandem makes of the imported topic's 2 write queues.
	importedQueues = 3
)

// startedVersions plays the story with each version, in a folder of its own.
func startedVersions(ctx context.Context, s *stage) (string, error) {
	var results []string
	for _, version := range []string{"5.3.3", "4.9.7"} {
		inner := &stage{theatre: s.theatre, dir: filepath.Join(s.dir, version)}
		if err := os.MkdirAll(inner.dir, 0o755); err != nil {
			return "", err
		}
		result, err := startedOn(ctx, inner, version)
		if err != nil {
			inner.showLogs()
			err = fmt.Errorf("%s: %w", version, err)
		}
		inner.clear()
		if err != nil {
			return "", err
		}
		results = append(results, result)
	}
	return strings.Join(results, "; "), nil
}

func startedOn(ctx context.Context, s *stage, version string) (string, error) {
	q, err := s.rocketmq(ctx, version)
	if err != nil {
		return "", err
	}
	p := &started{stage: s, q: q, store: filepath.Join(s.dir, "store")}
	for _, act := range []func(context.Context) error{p.origin, p.open, p.take, p.fill, p.commit, p.again, p.serve} {
		if err := act(ctx); err != nil {
			return "", err
		}
	}
	return p.back(ctx)
}

// origin lets a RocketMQ master write the folder first: a log whose delayed messages are not due for an hour, and its own files.
func (p *started) origin(ctx context.Context) (err error) {
	if _, p.nameServer, err = p.stage.nameServer(ctx, p.q); err != nil {
		return err
	}
	master, err := p.master(ctx, "origin")
	if err != nil {
		return err
	}
	if p.client, err = p.rocketClient(ctx, p.q, p.nameServer); err != nil {
		return err
	}
	for _, command := range []string{
		fmt.Sprintf("topic %s Plain %d", master.addr, startedQueues), fmt.Sprintf("send %d", startedQueues*startedPuts), "late 7 17", "late 4 18",
		"receive 60 Plain",
	} {
		if _, _, err := p.client.Ask(ctx, "%s", command); err != nil {
			return err
		}
	}
	say("a RocketMQ %s master wrote a log and its own files", p.q.Version)
	return master.stop(ctx)
}

// master starts a broker on the folder.
func (p *started) master(ctx context.Context, name string) (*broker, error) {
	return p.broker(ctx, p.q, name, p.store, "brokerId=0", "brokerRole=ASYNC_MASTER", "namesrvAddr="+p.nameServer)
}

// open starts Tandem's storage and config sync service on the folder.
func (p *started) open(ctx context.Context) (err error) {
	if p.tandem, err = p.stage.tandem(ctx, p.store, "brokerRole: ASYNC_MASTER", "brokerClusterName: tandem"); err != nil {
		return err
	}
	if p.config, err = p.configsync(p.tandem, func(string) []string { return []string{"brokerClusterName: tandem"} }); err != nil {
		return err
	}
	if p.api, err = configclient.Dial(configclient.Options{Addresses: []string{p.config.addr}}); err != nil {
		return err
	}
	if err := p.tandem.await(ctx, "opening", (*client.NodeStatus).GetOpen); err != nil {
		return err
	}
	return await(ctx, "Tandem's config sync service opening", func() (bool, error) {
		st, err := configsyncv1.NewConfigAdminServiceClient(p.config.conn).Status(ctx, &configsyncv1.StatusRequest{}, grpc.WaitForReady(true))
		return st.GetOpen(), err
	})
}

// shut stops both.
func (p *started) shut(ctx context.Context) error {
	if err := p.api.Close(); err != nil {
		return err
	}
	if err := p.config.stop(ctx); err != nil {
		return err
	}
	return p.tandem.stop(ctx)
}

// strange are the fields that no version knows: one beside the entries of each file, one in configs.
const (
	strangeBeside = `"besideTheTable":{"a":[1,"two",null,true],"b":{"деep":12345678901234567890}},`
	strangeField  = `"unheardOf":{"deep":[1,2.50,null,{"of":"it"}]},`
)

// imports are entries that are added to RocketMQ's own files, and those are imported.
var imports = []struct {
	kind                  configclient.Kind
	file, entry, old, new string
}{
	{
		configsyncv1.Kind_KIND_TOPICS, "topics.json",
		`"Imported":{` + strangeField + `"order":false,"perm":6,"readQueueNums":3,"topicFilterType":"SINGLE_TAG","topicName":"Imported",` +
			`"topicSysFlag":0,"writeQueueNums":2},"Dropped":{"perm":6,"readQueueNums":1,"topicName":"Dropped","writeQueueNums":1},`,
		`"topicName":"Plain"`, strangeField + `"topicName":"Plain"`,
	},
	{configsyncv1.Kind_KIND_CONSUMER_OFFSETS, "consumerOffset.json", `"Plain@imported-group":{0:11,2:13},`, "", ""},
	{configsyncv1.Kind_KIND_DELAY_OFFSETS, "delayOffset.json", "", "", ""},
	{
		configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS, "subscriptionGroup.json",
		`"imported-group":{` + strangeField + `"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,"consumeFromMinEnable":true,` +
			`"groupName":"imported-group","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1},`,
		`"groupName":"interop-consumer"`, strangeField + `"groupName":"interop-consumer"`,
	},
}

// take imports RocketMQ's own files with more entries and with fields that nobody knows.
func (p *started) take(ctx context.Context) error {
	var files []*configclient.File
	for _, im := range imports {
		text, err := os.ReadFile(filepath.Join(p.store, "config", im.file))
		if err != nil {
			return err
		}
		head := `"` + tableFields[im.file] + `":{`
		whole := strings.Replace(string(text), head, strangeBeside+head+im.entry, 1)
		if im.old != "" {
			whole = strings.Replace(whole, im.old, im.new, 1)
		}
		if due := len(text) + len(strangeBeside) + len(im.entry) + len(im.new) - len(im.old); len(whole) != due {
			return fmt.Errorf("%s of RocketMQ %s has not what is due: %s", im.file, p.q.Version, text)
		}
		files = append(files, &configclient.File{Kind: im.kind, Name: im.file, Data: []byte(whole)})
	}
	admin, err := p.api.Admin(p.config.addr)
	if err != nil {
		return err
	}
	_, err = admin.Import(ctx, files, true, false)
	return err
}

// fill makes, changes and deletes topics and groups, and puts messages.
func (p *started) fill(ctx context.Context) error {
	topics, groups := p.api.Topics(), p.api.Groups()
	made := []*configclient.Topic{
		{Name: madeTopic, ReadQueues: startedQueues, WriteQueues: startedQueues, Order: true, Attributes: map[string]string{"message.type": "FIFO"}},
		{Name: "Made-One", ReadQueues: 1, WriteQueues: 1},
		{Name: "Made-ReadOnly", ReadQueues: 8, WriteQueues: 4, Perm: new(int32(4))},
		{Name: "Made_WriteOnly", ReadQueues: 2, WriteQueues: 6, Perm: new(int32(2)), SysFlag: 1, FilterType: configsyncv1.TopicFilterType_TOPIC_FILTER_TYPE_MULTI_TAG},
		{Name: "Made-Many", ReadQueues: 700, WriteQueues: 300, Perm: new(int32(7))},
	}
	for _, group := range []string{madeGroup, orderlyGroup, importedGroup} {
		made = append(made, &configclient.Topic{Name: "%RETRY%" + group, ReadQueues: 1, WriteQueues: 1})
	}
	for _, t := range made {
		if _, err := topics.Create(ctx, t, nil); err != nil {
			return err
		}
	}
	for _, g := range []*configclient.Group{
		{Name: madeGroup, RetryMaxTimes: new(int32(7)), ConsumeEnable: new(false), BrokerId: 5},
		{
			Name: orderlyGroup, RetryQueues: new(int32(2)), ConsumeFromMinEnable: new(false), ConsumeBroadcastEnable: new(false),
			NotifyConsumerIdsChangedEnable: new(false), WhichBrokerWhenConsumeSlowly: new(int64(3)), ConsumeMessageOrderly: true,
			ConsumeTimeoutMinutes: new(int32(30)), Attributes: map[string]string{"a": "b"},
		},
	} {
		if _, err := groups.Create(ctx, g, nil); err != nil {
			return err
		}
	}
	if err := p.setQueues(ctx, importedQueues); err != nil {
		return err
	}
	_, err := groups.Update(ctx, &configclient.Group{Name: importedGroup, RetryMaxTimes: new(int32(9))}, []string{"retry_max_times"}, false, configclient.Condition{})
	if err != nil {
		return err
	}
	if err := topics.Delete(ctx, droppedTopic, configclient.Condition{}); err != nil {
		return err
	}
	return p.put(ctx)
}

// put puts messages to the queues in which groups stand.
func (p *started) put(ctx context.Context) error {
	producer := p.tandem.Producer(client.ProducerOptions{})
	for i := range startedQueues * startedPuts {
		m := message(i, madeTopic)
		m.QueueId = new(int32(i % startedQueues))
		r, err := producer.Put(ctx, m)
		if err != nil {
			return err
		}
		if r.GetStatus() != client.StatusOK {
			return fmt.Errorf("put %d is answered %s", i, client.StatusName(r.GetStatus()))
		}
	}
	return nil
}

// commit makes and resets offsets, and notes what Tandem has then.
func (p *started) commit(ctx context.Context) (err error) {
	offsets := p.api.Offsets()
	var all []*configclient.Offset
	for queue, at := range []int64{0, 1, 22, startedPuts} {
		all = append(all, &configclient.Offset{Group: madeGroup, Topic: madeTopic, QueueId: int32(queue), Offset: at},
			&configclient.Offset{Group: orderlyGroup, Topic: "Plain", QueueId: int32(queue), Offset: int64(queue) + 3})
	}
	if _, err := offsets.CommitBatch(ctx, all, true); err != nil {
		return err
	}
	_, err = offsets.Reset(ctx, &configclient.ResetRequest{
		Group: orderlyGroup, Topic: "Plain", QueueId: new(int32(3)), To: &configsyncv1.ResetRequest_Offset{Offset: 2},
	})
	if err != nil {
		return err
	}
	if _, err := offsets.CommitDelay(ctx, []*configclient.DelayOffset{{Level: 17, Offset: 5}, {Level: 18, Offset: 4}}); err != nil {
		return err
	}
	p.had, err = p.answers(ctx)
	return err
}

// again stops Tandem, starts it and stops it: its files must hold the same, fields that nobody knows among it.
func (p *started) again(ctx context.Context) error {
	if err := p.shut(ctx); err != nil {
		return err
	}
	if err := p.lives(ctx, false); err != nil {
		return err
	}
	left, err := strange(p.store)
	if err != nil {
		return err
	}
	if left != strangeAll {
		return fmt.Errorf("the files that Tandem wrote have %d of %d fields that nobody knows", left, strangeAll)
	}
	if p.wrote, err = readTables(p.store); err != nil {
		return err
	}
	say("Tandem wrote %s; a restart changed no key and no value; all %d fields that nobody knows are there", p.wrote.count(), left)
	return nil
}

// lives lets Tandem live on the folder for a while: it must have what it had, and write what it found.
func (p *started) lives(ctx context.Context, foreign bool) error {
	before, err := wholeFiles(p.store)
	if err != nil {
		return err
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	now, err := p.answers(ctx)
	if err != nil {
		return err
	}
	if err := p.had.same(now, foreign); err != nil {
		return err
	}
	for _, queues := range []int32{importedQueues + 1, importedQueues} { // the file is written anew, whatever a start does
		if err := p.setQueues(ctx, queues); err != nil {
			return err
		}
	}
	if err := p.shut(ctx); err != nil {
		return err
	}
	after, err := wholeFiles(p.store)
	if err != nil {
		return err
	}
	if d := before.differs(after); d != "" {
		return fmt.Errorf("a start of Tandem on these files changed them: %s", d)
	}
	return nil
}

// setQueues changes the imported topic, which has fields that nobody knows.
func (p *started) setQueues(ctx context.Context, n int32) error {
	_, err := p.api.Topics().Update(ctx, &configclient.Topic{Name: importedTopic, WriteQueues: n}, []string{"write_queues"}, false, configclient.Condition{})
	return err
}

// serve starts a broker on Tandem's files, asks it for its tables, by codes and by mqadmin, and stops it.
func (p *started) serve(ctx context.Context) error {
	b, err := p.master(ctx, "broker")
	if err != nil {
		return err
	}
	if _, _, err := p.client.Ask(ctx, "route %s", madeTopic); err != nil {
		return err
	}
	folder := filepath.Join(p.dir, "answers")
	if err := os.MkdirAll(filepath.Join(folder, "config"), 0o755); err != nil {
		return err
	}
	if _, _, err := p.client.Ask(ctx, "tables %s %s", b.addr, filepath.Join(folder, "config")); err != nil {
		return err
	}
	told, err := readTables(folder)
	if err != nil {
		return err
	}
	if d := differsForJava(p.q.Version, p.wrote, told); d != "" {
		return fmt.Errorf("the broker's answers differ from Tandem's files: %s", d)
	}
	say("a RocketMQ %s broker started on them; its answers to codes 21, 43, 45 and 201 are the same", p.q.Version)
	if err := p.askAll(ctx, b.addr); err != nil {
		return err
	}
	if p.left, err = strange(p.store); err != nil {
		return err
	}
	return b.stop(ctx)
}

// back starts Tandem on what the broker left: nothing is lost but what that had dropped.
func (p *started) back(ctx context.Context) (string, error) {
	left, err := strange(p.store)
	if err != nil {
		return "", err
	}
	if err := p.lives(ctx, true); err != nil {
		return "", fmt.Errorf("on the broker's files: %w", err)
	}
	say("Tandem on the broker's files has all it had, and wrote no key and no value otherwise; of the %d fields that "+
		"the broker does not know its files had %d while it ran and %d when it had stopped", strangeAll, p.left, left)
	return fmt.Sprintf("%s shows Tandem's topics, groups and offsets, by mqadmin too, and Tandem has all of them after it", p.q.Version), nil
}
