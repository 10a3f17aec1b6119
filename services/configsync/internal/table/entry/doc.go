// Package entry has what the four tables consist of: kinds, versions, the values of the entries, the rules for names and
// numbers, the JSON of one value as RocketMQ writes it, and the packed form of chunks, over which an entry is hashed too
// (../chunk/FORMAT.md).
//
//	kind              key             value
//	Topics            name            *TopicConfig
//	ConsumerOffsets   topic@group     *Offsets: per queue the next offset to consume, and the reset that it follows
//	DelayOffsets      level           *Delay
//	Groups            name            *GroupConfig
//
// Values are immutable once they are in a table; Clone gives one to change. A field that nobody here knows is kept in
// Unknown and written again. A config that came without fields of RocketMQ 5 is written without them as long as they have
// their defaults, so that a 4.x file stays one.
//
// # Offsets
//
// A queue's offset carries the number of the last reset it follows, its epoch. Two of them join to the higher (epoch,
// offset): within an epoch offsets only grow, and only a reset, which takes a new epoch, lowers one. A reset to NoOffset
// removes the offset. Join is commutative, associative and idempotent.
//
// What this package does not do: it keeps no tables and decides nothing about versions beyond their order.
package entry
