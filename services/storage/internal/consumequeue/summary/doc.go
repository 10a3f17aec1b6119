// Package summary is the codec of tandem/queues: what a store's queues hold when its log is read up to an offset (see
// ../FORMAT.md). It is written after all that it claims is durable, so a reader may believe it.
//
// What this package does not do: it looks at no queue file. A summary that is broken is as good as none.
package summary
