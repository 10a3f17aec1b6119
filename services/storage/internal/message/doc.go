// Package message knows RocketMQ's record format and whatever can be said about one record by looking at it alone:
// encoding and decoding, soundness, limits, properties, tags, delay levels, client batches, ids.
//
// A message comes as a Draft. Limits.Validate judges it; Append encodes it, without a lock and as far as that goes
// without a place; the log gives it its place with Stamp, under its append lock. Readers get a View by Decode, recovery
// and dispatch judge with Check.
//
//	Draft -- Validate -- Append --> [ record, offsets 0 ] -- Stamp --> [ record ] -- log
//	                                                                      |
//	          View, properties, tags code  <-- Decode, CheckView ---------+
//	          Record | Blank | End | *CorruptError  <-- Check, Next ------+
//
//	+------+-------+---------+-------+------+-------------+----------------+---- - -
//	| size | magic | bodyCRC | queue | flag | queueOffset | physicalOffset | ...     see FORMAT.md
//	+------+-------+---------+-------+------+-------------+----------------+---- - -
//
// Nothing a record claims is believed before it was checked against the bytes that are there, and nothing is allocated for
// a claim. Decode, Check, Property, TagsCode, Stamp, and Append into a large enough buffer allocate nothing. Views alias
// the bytes they were made from.
//
// RocketMQ's names: MessageDecoder, MessageExtEncoder, CommitLog#checkMessageAndReturnSize, MessageSysFlag,
// MessageConst, TopicValidator, ScheduleMessageService#parseDelayLevel, FilterAPI.
//
// What this package does not do: it reads no clock, no file and no network, decides neither offsets nor roles, does not
// decompress bodies, and knows nothing of files beyond the blank record at their end.
package message
