// Package nodes keeps the connections of a client to the nodes of one broker and finds the open master among them.
//
// The master is a guess until it has accepted a put: the first address, then whatever Moved says. FindMaster asks all
// addresses at once for their Status, and once more the upstreams of the slaves that answered; the open master with the
// highest epoch wins, so that an old master that does not know better yet is passed over.
//
//	guess ──accepted──▶ master ──NOT_MASTER or no answer──▶ survey of all addresses ─▶ of their upstreams ─▶ ErrNoMaster
//
// What this package does not do: it makes no put and decides nothing about trying one again.
package nodes
