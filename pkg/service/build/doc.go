// Package build says which version of a program this is, by what the go command put into the binary.
//
// What this package does not do: a version that the build sets by itself (-ldflags) is not its business.
package build
