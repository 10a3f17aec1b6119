// Package whole keeps a whole table as chunks, made once for a version however many slaves ask for it, and not before: the first chunk
// is on its way while the next is made.
//
// What this package does not do: it does not know which version is the newest; its owner asks for that, and drops the others.
package whole
