// Package peers asks the other nodes of the set: all at once, with a deadline, and with what was wrong with those who did not
// answer, so that a Status can name them.
//
// What this package does not do: it knows no gRPC (rpc implements Peers) and draws no conclusions (epoch does).
package peers
