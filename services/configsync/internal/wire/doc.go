// Package wire turns kinds and versions of tables into their form on the wire and back. Both the server's side (rpc) and the
// asking side (syncer) use it.
//
// What this package does not do: it knows no table's content; chunks are table/chunk's.
package wire
