// Package archtest holds the shape of the repository against its rules: which package may import which, what is pure, how
// long files, functions and packages may be, that each package says what it is, what lies at the top level, and that what the
// README points at is there.
//
//	go test ./pkg/internal/archtest
//
// A new package needs a line in the table (table_test.go); a new arrow between packages needs a reason that its reviewer
// believes. The table may name packages that do not exist yet.
//
// What this package does not do: it has nothing to import. What linters check is in .golangci.yml.
package archtest
