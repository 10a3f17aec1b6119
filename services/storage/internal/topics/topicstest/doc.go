// Package topicstest has a config sync service for tests of a storage: it keeps a topic table in memory, creates topics, and
// streams changes as the real one does, in chunks of its format. A test may have it refuse, break off, or answer nonsense.
//
// What this package does not do: it checks no names, keeps no other table, and follows nobody.
package topicstest
