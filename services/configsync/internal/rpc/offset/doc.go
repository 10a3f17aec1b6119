// Package offset is OffsetService: where consumer groups and the delay schedule stand.
//
//	commit ──▶ names, numbers ──▶ at most the queue's end? (storage) ──▶ role: open? ──▶ gathered ──▶ answered
//	                                                                                        └─▶ saved within 200 ms, or before the
//	                                                                                            answer where the caller asks for it
//
// A commit that is lower than what is there changes nothing and is no error: its answer has the offset that holds. Only a reset
// goes back. It raises the reset epoch of its queues, which no commit of before can pass: a consumer that names the epoch it has
// read is told of the reset (OFFSET_WAS_RESET), one that does not is taken at its word, as RocketMQ's are.
//
// RocketMQ's names: ConsumerManageProcessor, ConsumerOffsetManager#commitOffset, AdminBrokerProcessor#resetOffset.
//
// What this package does not do: it keeps nothing; the registry does.
package offset
