// Package nearest guesses which known word a mistyped one means.
//
// What this package does not do: it knows no language and no meaning, only letters.
package nearest
