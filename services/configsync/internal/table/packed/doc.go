// Package packed reads and writes the numbers and texts that chunks are made of: varints as in protobuf, and UTF-8 behind its
// length. Each has one form only: a number with needless bytes is refused, so that what was read is, written again, the same
// bytes.
//
// What this package does not do: it knows nothing of tables.
package packed
