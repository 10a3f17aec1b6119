// Package replication streams the log from a master to its slaves over the raw port and counts who has what. The format is
// that of package wire.
//
//	                 Written ~>  session.write ══ frames ══▶ Slave.Stream ─▶ Sink.AppendRaw
//	Source (log) ───▶ View/FileAt                                              │ ~> Report
//	                 Acked(k) <~ AckTracker <─ session.read ◀══ reports ══ reporter
//
// Master owns the listener. A connection is nothing to it, one of a bounded number that have 20 s to speak, until its first
// bytes are valid: the preamble with a token from Grant and the agreed start, or, where allowed, the first report of a plain
// RocketMQ slave. Then it is a session: one goroutine reads reports, one writes frames. What a session confirmed goes with it.
//
//	connection ─▶ greeted ──token, report──▶ session ─▶ DISCONNECTED (listed, last seen)
//	                 └─ anything else: counted by reason, closed
//
//	session:  CATCHING_UP ◀──▶ IN_SYNC        both ──no progress for 30 s──▶ STALLED ──progress──▶ back
//
// Sending: at most one small frame is unconfirmed per slave; the next takes all that has gathered, the puts first that the same
// report set free. Full frames are pipelined, many to one writev. Each slave has its own goroutines and place in the log, so a slow
// one delays nobody; one that takes no byte for the housekeeping interval is closed: it cannot hold a lease for ever.
//
// Slave receives: whatever part of a body has arrived is appended at once (frames cut records anywhere, so a part of a frame
// is as good as a frame). So nothing but an incomplete header ever waits in the 1 MiB buffer, and a link that dies in the
// middle of a frame leaves exactly the bytes that came. It waits in the kernel, not in the runtime's poller (link.Take).
//
// RocketMQ's names: AcceptSocketService is Master.accept; HAConnection is session, its ReadSocketService session.read and its
// WriteSocketService session.write; GroupTransferService is AckTracker with the marks of Acked; HAClient is Slave;
// WaitNotifyObject is watermark.Mark.
//
// What this package does not do: it decides nothing about epochs, truncation or roles (package role does, before a stream
// begins), does not look into records, does not reconnect, and keeps nothing on disk.
package replication
