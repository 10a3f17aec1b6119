package main

import (
	"context"
	"crypto/sha1" //nolint:gosec // a comparison, no secret
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
	"github.com/tandemlog/tandem/pkg/client"
)

// leading is the story of scenario c: Tandem takes over a RocketMQ master's folder and feeds a RocketMQ slave.
type leading struct {
	*stage
	q      *rocketmq.RocketMQ
	newer  *rocketmq.RocketMQ
	store  string // the folder taken over
	origin string // a copy of what RocketMQ wrote
	taken  int64  // where Tandem's part of the log begins
	tandem *node
	slave  *broker
	puts   []string // Tandem's messages as RocketMQ should show them: see lineOf
	shown  []string // all records as RocketMQ's decoder shows them
}

// Topics of Tandem's puts: one of its own, and one that RocketMQ's client has written to.
const (
	newTopic = "TandemInterop"
	oldTopic = "Plain"
)

func lead(ctx context.Context, s *stage) (string, error) {
	q, err := s.rocketmq(ctx, "4.9.7")
	if err != nil {
		return "", err
	}
	newer, err := s.rocketmq(ctx, "5.3.3")
	if err != nil {
		return "", err
	}
	l := &leading{stage: s, q: q, newer: newer, store: filepath.Join(s.dir, "master", "store"), origin: filepath.Join(s.dir, "origin")}
	for _, act := range []func(context.Context) error{l.write, l.takeOver, l.put, l.compare, l.decode} {
		if err := act(ctx); err != nil {
			return "", err
		}
	}
	received, err := l.promote(ctx, l.q, "the slave's", l.slave.store)
	if err != nil {
		return "", err
	}
	if _, err := l.promote(ctx, l.newer, "Tandem's own", l.store, "enabledAppendPropCRC=true"); err != nil { // it checks the CRC of each record
		return "", err
	}
	return fmt.Sprintf("%d of Tandem's puts arrived in a RocketMQ 4.9.7 slave behind %d bytes of RocketMQ's, decoded by 4.9.7 and 5.3.3; "+
		"%d messages received by RocketMQ's consumer from the slave's folder, and as many by 5.3.3's from Tandem's", len(l.puts), l.taken, received), nil
}

// write lets a RocketMQ master write a store and stops it.
func (l *leading) write(ctx context.Context) error {
	names, nameServer, err := l.nameServer(ctx, l.q)
	if err != nil {
		return err
	}
	master, err := l.broker(ctx, l.q, "master", l.store, "brokerId=0", "brokerRole=ASYNC_MASTER", "namesrvAddr="+nameServer)
	if err != nil {
		return err
	}
	c, err := l.rocketClient(ctx, l.q, nameServer)
	if err != nil {
		return err
	}
	if _, _, err := c.Ask(ctx, "load 2"); err != nil {
		return err
	}
	log := newWalker(l.store)
	err = await(ctx, "the load writing", func() (bool, error) {
		end, err := log.end()
		return end >= historySize, err
	})
	if err != nil {
		return err
	}
	if _, _, err := c.Ask(ctx, "halt"); err != nil {
		return err
	}
	for _, p := range []*process{c.process, master.process, names} {
		if err := p.stop(ctx); err != nil {
			return err
		}
	}
	if l.taken, err = log.end(); err != nil {
		return err
	}
	say("a RocketMQ %s master wrote %d bytes and was stopped", l.q.Version, l.taken)
	return copyFiles(l.store, l.origin)
}

// takeOver opens Tandem on that folder as a sync master, with a RocketMQ slave.
func (l *leading) takeOver(ctx context.Context) (err error) {
	if l.tandem, err = l.stage.tandem(ctx, l.store, "brokerRole: SYNC_MASTER", "ha: {legacySlaves: true}"); err != nil {
		return err
	}
	err = l.tandem.await(ctx, "opening", func(st *client.NodeStatus) bool {
		return st.GetOpen() && st.GetWatermarks().GetWrittenOffset() == l.taken
	})
	if err != nil {
		return err
	}
	if l.slave, err = l.javaSlave(ctx, l.q, l.tandem.haAddr); err != nil {
		return err
	}
	if err := l.inSync(ctx, l.tandem); err != nil {
		return err
	}
	say("Tandem took the folder over as SYNC_MASTER; an empty RocketMQ %s slave has all of it", l.q.Version)
	return nil
}

// javaSlave starts an empty RocketMQ slave of a replication port.
func (s *stage) javaSlave(ctx context.Context, q *rocketmq.RocketMQ, haAddr string) (*broker, error) {
	return s.broker(ctx, q, "slave", filepath.Join(s.dir, "slave", "store"), "brokerId=1", "brokerRole=SLAVE", "haMasterAddress="+haAddr)
}

// inSync waits until the node's RocketMQ slave has reported the node's end.
func (s *stage) inSync(ctx context.Context, n *node) error {
	return n.await(ctx, "seeing its RocketMQ slave in sync", func(st *client.NodeStatus) bool {
		for _, sl := range st.GetSlaves() {
			if sl.GetLegacy() && sl.GetInSync() && sl.GetAckedOffset() == st.GetWatermarks().GetWrittenOffset() {
				return true
			}
		}
		return false
	})
}

// put puts messages by each way that the client has; all must be PUT_OK.
func (l *leading) put(ctx context.Context) error {
	producer := l.tandem.Producer(client.ProducerOptions{})
	for i := range 60 {
		m := message(i, newTopic)
		r, err := producer.Put(ctx, m)
		if err := l.note(m, r, err); err != nil {
			return err
		}
	}
	for b := range 10 {
		var ms []*client.Message
		for i := range 6 {
			m := message(1000+10*b+i, oldTopic)
			queue := int32(b % 4)
			m.QueueId = &queue
			ms = append(ms, m)
		}
		rs, err := producer.PutBatch(ctx, ms)
		for i, m := range ms {
			var r *client.Result
			if err == nil {
				r = rs[i]
			}
			if err := l.note(m, r, err); err != nil {
				return err
			}
		}
	}
	if err := l.stream(ctx, producer); err != nil {
		return err
	}
	say("%d puts by Tandem's client (one by one, in batches, by a stream): all PUT_OK", len(l.puts))
	return nil
}

// stream puts with many in flight.
func (l *leading) stream(ctx context.Context, producer *client.Producer) error {
	const n = 1000
	outcomes := make(chan client.Outcome, n)
	err := producer.Stream(ctx, func(sender *client.Sender) error {
		for i := range n {
			_, err := sender.Send(ctx, message(10_000+i, newTopic), func(o client.Outcome) { outcomes <- o })
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	close(outcomes)
	for o := range outcomes {
		if err := l.note(o.Message, o.Result, o.Err); err != nil {
			return err
		}
	}
	if want := 60 + 60 + n; len(l.puts) != want {
		return fmt.Errorf("%d puts have an outcome, due are %d", len(l.puts), want)
	}
	return nil
}

// message makes the i-th message.
func message(i int, topic string) *client.Message {
	m := &client.Message{
		Topic: topic, Body: fmt.Appendf(nil, "%d %s", i, strings.Repeat("körper ", i%97)),
		Keys: []string{"t" + strconv.Itoa(i)}, Properties: map[string]string{"свойство": "значение " + strconv.Itoa(i)},
	}
	if i%3 > 0 {
		m.Tag = "tag" + strconv.Itoa(i%3)
	}
	return m
}

// note checks a put's outcome and keeps what RocketMQ should show of it.
func (l *leading) note(m *client.Message, r *client.Result, err error) error {
	if err != nil {
		return fmt.Errorf("put %s: %w", m.GetKeys()[0], err)
	}
	if r.GetStatus() != client.StatusOK {
		return fmt.Errorf("put %s is answered %s, due is PUT_OK", m.GetKeys()[0], client.StatusName(r.GetStatus()))
	}
	l.puts = append(l.puts, lineOf(m, r))
	return nil
}

// lineOf is a line of peer/Records.java.
func lineOf(m *client.Message, r *client.Result) string {
	sum := sha1.Sum(m.GetBody()) //nolint:gosec // a comparison, no secret
	return strings.Join([]string{
		strconv.FormatInt(r.GetOffset(), 10), m.GetTopic(), strconv.Itoa(int(r.GetQueueId())),
		strconv.FormatInt(r.GetQueueOffset(), 10), m.GetTag(), m.GetKeys()[0], hex.EncodeToString(sum[:]),
	}, "\t")
}

// compare stops both and compares their files.
func (l *leading) compare(ctx context.Context) error {
	if err := l.inSync(ctx, l.tandem); err != nil {
		return err
	}
	if err := l.slave.stop(ctx); err != nil {
		return err
	}
	if err := l.tandem.stop(ctx); err != nil {
		return err
	}
	all, err := sameStores(l.store, l.slave.store)
	if err != nil {
		return err
	}
	say("the slave's files are Tandem's: %v", all)
	before, err := partOf(l.origin, l.slave.store)
	if err != nil {
		return err
	}
	say("what RocketMQ's master had written stands unchanged in both: %d bytes, %d units", before.end-before.from, before.units)
	return nil
}

// decode reads the slave's log by RocketMQ's own decoder, of both versions.
func (l *leading) decode(ctx context.Context) error {
	for _, q := range []*rocketmq.RocketMQ{l.q, l.newer} {
		lines, err := l.records(ctx, q, l.slave.store)
		if err != nil {
			return err
		}
		tandem := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			offset, _, _ := strings.Cut(line, "\t")
			at, err := strconv.ParseInt(offset, 10, 64)
			return err == nil && at < l.taken
		})
		if err := sameLines(l.puts, tandem); err != nil {
			return fmt.Errorf("RocketMQ %s's decoder, on the slave's log: %w", q.Version, err)
		}
		say("RocketMQ %s's own decoder reads %d records in the slave's log, the last %d as Tandem's client put them", q.Version, len(lines), len(tandem))
		l.shown = lines
	}
	return nil
}

// sameLines compares two sets of lines.
func sameLines(want, got []string) error {
	slices.Sort(want)
	slices.Sort(got)
	for i := range min(len(want), len(got)) {
		if want[i] != got[i] {
			return fmt.Errorf("it shows %q where %q is due", got[i], want[i])
		}
	}
	if len(want) != len(got) {
		return fmt.Errorf("it shows %d, due are %d", len(got), len(want))
	}
	return nil
}

// promote starts a broker as master on a folder and lets RocketMQ's consumer read both topics from it.
func (l *leading) promote(ctx context.Context, q *rocketmq.RocketMQ, name, store string, settings ...string) (int, error) {
	names, nameServer, err := l.nameServer(ctx, q)
	if err != nil {
		return 0, err
	}
	settings = append(settings, "brokerId=0", "brokerRole=ASYNC_MASTER", "namesrvAddr="+nameServer)
	master, err := l.broker(ctx, q, "promoted-"+q.Version, store, settings...)
	if err != nil {
		return 0, err
	}
	c, err := l.rocketClient(ctx, q, nameServer)
	if err != nil {
		return 0, err
	}
	// A slave without a name server asks for no tables, so the broker is told of the topics; their queues are there.
	for _, topic := range []string{newTopic, oldTopic} {
		if _, _, err := c.Ask(ctx, "topic %s %s 8", master.addr, topic); err != nil {
			return 0, err
		}
	}
	want := slices.DeleteFunc(slices.Clone(l.shown), func(line string) bool {
		topic := strings.Split(line, "\t")[1]
		return topic != newTopic && topic != oldTopic
	})
	_, got, err := c.Ask(ctx, "receive %d %s %s", len(want), newTopic, oldTopic)
	if err != nil {
		return 0, err
	}
	if err := sameLines(want, got); err != nil {
		return 0, fmt.Errorf("RocketMQ %s's consumer, on %s folder: %w", q.Version, name, err)
	}
	say("a %s broker is master on %s folder: RocketMQ's own consumer received all %d messages of two topics, each once", q.Version, name, len(got))
	for _, p := range []*process{c.process, master.process, names} { // what they did is seen, their clean stop takes long
		if err := p.kill(); err != nil {
			return 0, err
		}
	}
	return len(got), nil
}
