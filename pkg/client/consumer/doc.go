// Package consumer reads the queues of a topic for a consumer group, hands each message to a handler, and keeps where the group
// stands in config sync. Where RocketMQ has DefaultMQPushConsumer with MessageListenerOrderly, here is Consumer.
//
//	c, err := consumer.New(storages.Reader(), configs.Offsets(), consumer.Options{
//		Group: "billing", Topic: "orders",
//		Each:  func(ctx context.Context, m *consumer.Message) error { ... },
//	})
//	err = c.Run(ctx)
//
// Each queue has a reader and a handler of its own:
//
//	GetStream ──▶ [ prefetched: Prefetch, PrefetchBytes ] ──▶ handler, in queue order ──▶ position ─ ─ every CommitInterval ─ ─▶ OffsetService
//	     ▲                                                                                  ▲
//	     └── broken: the next address, behind the last message                              └── the offset was reset: begin there
//
// # What holds
//
//   - A queue's messages are handed over one after the other, in the order of their queue offsets.
//   - A position is committed only when the handler has returned nil for all before it. A message is handed over again when the
//     process ends before that, or when the master of the offsets is lost with commits that nobody else has yet: at least once,
//     never skipped.
//   - When storages or config sync nodes are gone it tries again, at the other addresses, until ctx ends. Positions do not go back:
//     a new master that knows less is told again.
//   - A topic that may not be read now, or has fewer queues for readers than before, is waited for, queue by queue.
//   - A reset of the group's offsets is heard within CommitInterval, also by a consumer that has nothing to do. The handler's context
//     is cancelled, and what it returns for that does not count.
//   - An error of the handler ends Run; what was handled before is committed.
//   - A message that is larger than the Reader's client takes ends Run, when all before it are handled and committed, with
//     client.ErrTooLarge: it names topic, queue and offset, and the option to raise. Passing it over is a reset to the offset behind it.
//   - At most Prefetch messages and PrefetchBytes (and one message more) wait in each queue, beside one answer of the storage.
//
// What this package does not do: it shares no queues among the members of a group (name each one's with Queues), has no retry topic,
// no broadcasting and no transactions, and a filter's gaps are committed only with the next message that passes.
package consumer
