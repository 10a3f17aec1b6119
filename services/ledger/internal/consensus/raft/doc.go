// Package raft has the words of a ledger's group: indexes, terms, entries, the messages its members send each other and the
// reasons they refuse them for, and the lineage, which knows the terms of a whole log in a few bytes.
//
// The message types keep the names of DLedger's pushes (PushEntryRequest.Type) and elections. What the words do to each other
// is package consensus.
//
// What this package does not do: it decides nothing and has no format; package peer says how messages look on the wire, and
// package entrylog how entries look on disk.
package raft
