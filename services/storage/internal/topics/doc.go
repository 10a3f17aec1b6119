// Package topics is the storage's view of the topic table: which topics there are, how many queues they have for writers and for
// readers, and who may write and read.
//
// The table is kept by the configsync service. A View follows it by a watch stream from the node's own configsync, whatever that
// node's role, and holds it in memory only:
//
//	Run ─▶ Watch ─▶ a transfer: chunks ─▶ checked, whole ─▶ the next snapshot (an atomic pointer) ─▶ published ~> waiters
//	 ▲                                                         │
//	 └── backoff with jitter ◀── broken, refused: the last snapshot stays, State says why
//
// What holds for a topic:
//
//	in the table        writers get its write queues, readers its read queues; without the permission ErrNoPermission
//	not in the table    a put has it created with the default queue count through TopicService, on the configsync that leads, and
//	                    waits until the view has it (AutoCreate), or is refused with ErrNotFound; a get is not judged, as what was
//	                    put before a topic was deleted stays readable
//	no table yet        every legal topic has the default queue count, and everybody may write and read: a storage starts and works
//	                    without its configsync. The first put says so in the log. Messages that came into queues beyond those
//	                    that the table then has stay, and are read when the topic gets more read queues.
//	configsync is gone  the last view holds. Topics that are not in it cannot be created: ErrNotCreated, which is worth a retry.
//
// An empty table does not replace one with topics unless it says of each that it was deleted: configsync's own rule. A storage
// without configsync has a static view: "no table yet" for ever, as a RocketMQ broker with autoCreateTopicEnable.
//
// A look at a known topic costs no allocation and no lock. A change copies one of 256 parts of the table.
//
// The caller has checked the topic's name (message.CheckTopic): a view does not judge characters.
//
// RocketMQ's names: TopicConfigManager, of which this is the reading side and createTopicInSendMessageMethod;
// SendMessageProcessor and PullMessageProcessor have the checks.
//
// What this package does not do: it saves nothing, changes no topic and creates no queue.
package topics
