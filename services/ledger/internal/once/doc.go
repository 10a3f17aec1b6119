// Package once takes clients' appends to the node and sees to it that one with a key stands in the log once, however often it is
// repeated, also after a change of leader and a restart.
//
//	Append ─▶ queue ─▶ Run: known? ─ no ─▶ ProposeIn(term) ─▶ Pending.Wait ~ committed
//	                         │ yes: its index                        │
//	                         ▼                                       ▼
//	                window: keys of the last entries ◀─ follow ─ committed entries (log)
//
// A key is a client's random id and a number of its own; it stands behind the body in the entry (FORMAT.md), so every node that has the
// entry has the key. The window holds the keys of the last Window entries of the log that are committed. A request says behind which
// committed index its first attempt began (After): if the window reaches back to it, and knows no such key, the entry does not stand;
// if it does not reach back that far, nobody can say, and the append is refused with ErrWindowPassed.
//
// A new leader looks nothing up before it has committed an entry of its own term and the window holds all that came before: then all
// keys of its log are in the window or among its own appends under way. Each proposal is bound to the term in which that was
// found out.
//
// What gathers while one proposal is on its way to the node goes as one batch, in order. The queue is bounded (ErrBusy).
//
// What this package does not do: it validates no sizes (package rpc does), and it does not order a client's appends.
package once
