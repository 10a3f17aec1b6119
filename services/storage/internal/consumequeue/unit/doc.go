// Package unit is one entry of a queue as it stands in its file: 20 bytes, FORMAT.md of consumequeue.
//
// What this package does not do: it knows no queue and no file.
package unit
