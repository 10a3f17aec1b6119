// Package mappedfile is an ordered queue of files of one size that together are one long address space.
//
// A file is named after the offset of its first byte, twenty digits, and is as long as every other from the moment it
// appears under its name. RocketMQ has this as MappedFileQueue and MappedFile (DefaultMappedFile).
//
//	offset   0          F          2F         3F
//	         ├──────────┼──────────┼──────────┤
//	dir/     000…0      000…F      000…2F      (F = FileSize)
//	         First()               Last()      Create(3F)
//
// Open checks the folder and changes nothing in it, save for an empty last file, the trace of a broker killed while it made
// one, which it removes. A file of another length, a start that is no multiple of the size and a gap are typed errors that
// name the file or the missing offset; names that are no offsets are left alone and listed by Foreign.
//
// Who reads a file's memory or descriptor takes a lease (Acquire, Release). Nothing is unmapped, removed or cut under a
// lease: the owner waits for its end, and after a bound gives up with ErrBusy and leaves the file as it was.
//
// One owner calls Create, RemoveFrom, Cut, DropBefore and Close, one at a time; only Create and DropBefore, which work at
// the two ends, may run side by side. Find, First, Last, Files and the leases may be used by anybody at any time.
//
// What this package does not do: it knows no records and no end of data, and it syncs only what it made or cut itself
// and what SyncRange and Renew are asked for.
package mappedfile
