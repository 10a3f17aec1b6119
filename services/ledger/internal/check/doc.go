// Package check reads the folder of a stopped ledger node, Tandem's or DLedger's, and tells what is wrong with it: entries, index, and
// what the node has promised. It changes nothing.
//
//	tandem/hard, tandem/log, currterm, checkpoint ─▶ base, mark ─▶ every entry from the base on ─▶ its unit in the index
//
// A damage is what a start refuses, or what it would not notice; a note is what a start puts right or what is only worth knowing.
//
// What this package does not do: it repairs nothing, and it cannot know what a file that agrees with itself should have held.
package check
