// Package checkpoint is RocketMQ's `checkpoint` file (StoreCheckpoint): 4,096 bytes that say what of a store is on disk
// for sure, so that recovery after a crash need not look at all of it. ../FORMAT.md has the bytes.
//
// Bytes that no field here covers are kept as they are, those of later RocketMQ versions too. Tandem adds how far the log
// was flushed, to the byte, where a broker neither reads nor writes; a copy of RocketMQ's own time beside it shows whether a
// broker has used the folder since, and then it does not count.
//
// What this package does not do: it decides nothing and writes only when asked.
package checkpoint
