// Package recovery finds the end of a log in its files: CommitLog#recoverNormally and #recoverAbnormally, made stricter.
//
//	record ─▶ record ─▶ blank ─▶ next file ─▶ record ─▶ ? ──┬─ a sound record behind it: rot, keep all, go on there
//	                                                        └─ none: the end; what is behind it is cut
//
// Where the machine went down, there may be holes behind what was durable. The first one is the end, whatever is behind it: that
// reached the disk by chance, nobody was told that it is there, and who followed has what lay in the hole.
//
// A record is sound when its lengths agree, body CRC and `__CRC32#` (where it has one) are right and its own PHYSICALOFFSET
// is its place. So neither a record left over from another place nor a half-written one is taken, and one flipped bit
// does not cost what was written after it.
//
// What this package does not do: it knows neither checkpoint nor abort file, and keeps no state.
package recovery
