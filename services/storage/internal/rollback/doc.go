// Package rollback reads what a change of the master cut from a log and kept below rollback/: as raw bytes, or record by record,
// so that an operator can look at it and put it again.
//
//	rollback/<from>-<to>-<epoch>/    [ rest of a record | record | record | ... | start of a record ]
//	                                    gap               offsets are those of the log that it was cut from
//
// The same range cut again by the same epoch has -2 behind its name, then -3.
//
// A range may begin in the middle of a record, where two logs were told apart by checksums, and end in the middle of one, where
// a stream had stopped: reading starts at the next sound record and says what it left out.
//
// What this package does not do: it keeps, cuts and removes nothing (package commitlog does the first two, an operator the
// third), and puts nothing back (tandemctl does, as a client of the master).
package rollback
