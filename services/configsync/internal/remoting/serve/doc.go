// Package serve answers Java slaves as a Java master would: the four tables in RocketMQ's JSON, and what else its slaves ask.
//
//	21 43 45 201    the table, with its version, in one answer        402   an empty map
//	906             addresses of this node and its storage's end      others: code 3
//	one-way requests and answers: counted, no answer
//
// A Java slave deletes what an answer does not have, and writes an answer with delay offsets to its file as it comes. So nothing but
// whole tables of an open master leaves this node: anywhere else, and for tables that are empty although a broker's never are, the
// answer is code 1, which leaves that table of the slave as it is.
//
//	connection ─▶ frame ─▶ answer ─▶ frame ─▶ ...        one frame at a time, so one answer at most is held per connection
//	    │           └─ wrong lengths, broken header, TLS, HTTP: counted by reason, closed
//	    └─ beyond MaxConns: closed                        silent for Idle: closed
//
// Headers are bounded, bodies of requests are skipped and never kept, and a table is turned into JSON once per version, however many
// slaves ask for it.
//
// RocketMQ's names: AdminBrokerProcessor#getAllTopicConfig and its siblings; both its remoting servers, with the VIP port.
//
// What this package does not do: it has no role of its own, pages nothing (5.3.3 and before do not), and serves no messages.
package serve
