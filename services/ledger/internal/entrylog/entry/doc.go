// Package entry is the codec of DLedger's files: entries, units of the index and the record that closes a file
// (DLedgerEntry, DLedgerEntryCoder, DLedgerIndexEntry). ../FORMAT.md has the bytes.
//
//	offset  0      4     8       16     24    32        36      40     44       48
//	        +------+-----+-------+------+-----+---------+-------+------+--------+------
//	        | magic| size| index | term | pos | channel | chain | body | length | body
//	        |      |     |       |      |     |         | crc   | crc  |        |
//	        +------+-----+-------+------+-----+---------+-------+------+--------+------
//
// DLedger 0.3.1 leaves both checksums zero and never looks at them. Tandem seals its entries with them: Read refuses a
// sealed entry of which any bit is not what was written, and what an unsealed one says about itself must at least agree.
//
// What this package does not do: it knows no files, and not whether an entry is in its place. Callers compare index, term
// and pos with what they expect.
package entry
