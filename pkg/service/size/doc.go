// Package size reads and writes numbers of bytes as people write them.
//
// What this package does not do: it knows powers of 1,024 only.
package size
