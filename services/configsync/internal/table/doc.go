// Package table has the four tables of a broker as values: what a version of a table is, how the next one is made, what
// has changed since, and what becomes of a slave's table when the master's comes. FORMAT.md has the rules of merging.
//
//	            Edit ──▶ Done ──▶ next Table ─┬─▶ Since(version): Delta, deletions explicit
//	Table ──────┤                             └─▶ Full: everything, with what is known of deletions
//	            └─ Follow (Tandem master), FollowJava (Java master), Join (a peer, before leading)
//
// A Table never changes: whoever has one reads it without a lock, and the next one shares with it whatever is equal. Each
// entry has the counter of the version that changed it last, so that a delta costs what it carries and not what the table
// holds. Sum is a hash of the content that is the same on every node, whatever way the content took; it tells a whole
// table from half of one, and two contents under one version apart.
//
// Memory grows with the entries and nothing else: 47 bytes for an offset (four queues to a key), 171 for a topic, measured
// by the benchmarks of package registry from 62,500 to 1,000,000. Tombstones are bounded: who comes from before them gets the
// whole table.
//
// Words of the original: DataVersion is entry.Version, SlaveSynchronize#syncAll's replacing and putAll are Follow and
// FollowJava, ConfigManager's encode and decode are package jsonfile.
//
// What this package does not do: it has no clock (times are passed in), no lock and no file, and does not know who leads.
package table
