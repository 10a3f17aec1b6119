// Package meta keeps the small files of an entry log: what a node has promised, where its log begins and is known to be
// whole, and the same for Java's DLedger to read. ../FORMAT.md has the bytes.
//
//	tandem/hard   what must never be forgotten: term, vote, voter         synced before any promise leaves
//	tandem/log    base, mark, commit index, a cut under way, who is open  synced when it changes
//	currterm      term and vote, for DLedger (MemberState#persistTerm)    after tandem/hard
//	checkpoint    commit index and end, for DLedger (persistCheckPoint)   every few seconds, and at the end
//
// Tandem's files have a checksum, and the older backup is never taken for them: a broken promise is no promise. Java's have
// none and are believed only in a folder that Tandem has not had yet, or for a higher term.
//
// What this package does not do: it decides nothing; package entrylog does.
package meta
