// Package paging has the sizes and tokens of lists with pages.
//
// A token names the last key of its page, so that a list goes on at the same place whatever was added or deleted meanwhile.
//
// What this package does not do: it lists nothing.
package paging
