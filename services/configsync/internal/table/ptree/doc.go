// Package ptree is an ordered map whose values never change: what an Editor makes of a Tree shares with it all that is
// equal, so that a reader keeps the tree it has, without a lock, while the next one is made. Each item has a mark, and a tree
// finds those above a given mark without looking at the others.
//
// It is a B+ tree: items in the leaves, in the order of the keys; a node knows its first key and its highest mark. A
// change copies the nodes from the root to one leaf, about 2 KiB, once per Editor.
package ptree
