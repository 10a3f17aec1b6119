// Package feed is the control stream between an upstream and its slave behind the first answer. Tell, the upstream's side, says how far
// its log goes and how much of it readers may see, and at last why the link ends; Apply, the slave's, lets readers see that much.
// Raise decides how much that is on an open master.
//
// What this package does not do: it admits nobody and ends no link (package role does).
package feed
