// Package sums computes checksums of stretches of the log and compares two logs by them: the hands of epoch.Compare.
//
// What this package does not do: it decides nothing, and it asks nobody by itself.
package sums
