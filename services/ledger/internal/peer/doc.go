// Package peer carries the messages of a group's members over gRPC: the client and the server side of PushService and
// ElectionService.
//
//	            ┌─ pushes ──▶ one Push stream, a connection of its own ──▶ Members.Push ─┐
//	node ─ Send ┼─ control ─▶ unary calls, another connection ───────────▶ Members.Vote … ├─▶ Deliver ─▶ node
//	            ├─ reads ───▶ unary calls on that connection too ─────────▶ ReadIndex ───┘
//	            └─ answers ─▶ to the stream or the call that waits for them, or to nobody
//
// Send never blocks: each peer has three bounded queues, and what does not fit is dropped and counted. Raft repeats what
// matters. Bulk cannot delay a vote or a heartbeat: they have a connection of their own. An Append in a queue names its
// entries only; they are read from the log when it leaves, and it is dropped when the log was cut since. The bytes of a lease are
// copied once, into the frame, and the lease ends before the frame is sent.
//
// A peer that is gone without a word is noticed by the deadline of each call, in time for an election, and by keepalive, which
// ends the connections after 15 s.
//
// What comes in is checked before the node sees it: group, sender, receiver, numbers, and of entries magic, sizes, checksums, index
// and order. What is wrong is refused with a typed error and counted, and changes nothing; a bad message ends its stream.
//
// What this package does not do: it decides nothing about terms, votes and logs (package consensus does), and it trusts whoever
// TLS lets in to be the member that it says it is.
package peer
