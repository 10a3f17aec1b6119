// Package feed is the upstream's side of a control stream behind its first answer: it tells a slave how far the upstream's log
// goes and how much of it readers may see, and at last why the link ends.
//
// What this package does not do: it admits nobody and ends no link (package role does).
package feed
