// Package chunk turns a table.Delta into chunks of at most 1,024 entries and about a megabyte, and back. They go over the
// wire between Tandems one to a message, and one behind the other into the registry's journal. FORMAT.md has the bytes.
//
// A chunk has a checksum and says to which delta it belongs and which of its chunks it is; Assembly takes them in order
// and gives a delta only when the last one was there. The entries of a whole table go into a new table as they come. What is
// wrong with one is an error that leaves nothing behind.
//
// What this package does not do: it does not judge versions or contents, package table does.
package chunk
