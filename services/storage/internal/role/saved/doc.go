// Package saved keeps the lineage of a storage on its disk: what was saved last, and whether a change has to be there before
// anything that it allows is done. It also tells whose folder that is (CheckOwner, Adopt).
//
// What this package does not do: it decides nothing about roles; it is used by one goroutine at a time.
package saved
