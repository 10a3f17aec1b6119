// Package chunk reads the topic table as the config sync service sends it: what has changed between two versions of it, or all
// of it, as a row of chunks. The bytes are described in FORMAT.md of services/configsync/internal/table/chunk, of whose formats
// this package knows the one of topics; its test holds it against the example there.
//
// Of a topic's config only what a storage obeys is taken: permission and queue counts.
//
// What this package does not do: it writes no chunks, and judges neither versions nor contents.
package chunk
