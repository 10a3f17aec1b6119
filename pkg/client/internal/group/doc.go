// Package group keeps the connections of a client to the members of a ledger's group, finds the leader among them, and says
// when and where an append is tried again.
//
// The leader is a guess until it has accepted an append: the first address, then whatever Moved says. FindLeader asks all
// addresses at once for their Status: the leader of the newest term wins, so that a leader that was cut off is passed over, and
// a node that is silent is not waited for when a majority has spoken.
//
//	guess ──accepted──▶ leader ──NOT_LEADER──▶ the address that it names
//	                           ──no answer──▶ survey ─▶ a leader, or one that they name ─▶ ErrNoLeader, a pause, and again
//
// What this package does not do: it makes no append and does not know what a failure means for one.
package group
