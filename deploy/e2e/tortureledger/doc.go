// Command tortureledger runs whole ledgers as processes and mistreats them: three nodes are killed with -9 and stopped with SIGSTOP,
// the links between them are cut, held in one direction or both, and delayed, one of them finds its disk full, and leadership is
// handed over, while eight clients append and read.
//
//	clients ──▶ n0 ◀─ a proxy for each ─▶ n1 ◀── clients
//	             ▲     pair and way        ▲
//	             └──────────▶ n2 ◀─────────┘
//
// A window is a few seconds of faults and at most 5,000 operations; then everything is healed, the nodes come to rest, and the
// history is checked:
//
//   - what was acknowledged stands where it was said to, what was refused stands nowhere, and nothing stands twice
//   - appends and reads (each sees everything acknowledged before it, on leader and followers) are linearizable: porcupine
//     finds an order of theirs that fits their times. An append of unknown fate may come at any time, in a later window too
//   - the committed logs of all nodes are the same, and no entry of an earlier window has changed
//   - no node ended by itself, and all come to rest within two minutes
//
// A cluster lives for a few windows; at the end of its life every folder must pass `ledger check`, and a fresh cluster follows. The
// seed is printed; -seed and -first repeat the plan of faults, not the same interleaving. The disk that is filled is a tmpfs; where
// none may be mounted the summary says so.
//
// With -kills n it kills the leader n times under load instead, and tells how long it took until the next leader acknowledged an
// append, as a ratio to the upper bound of the election timeout. With -isolate d it cuts a follower off for d, both ways and
// each way by itself, and tells whether its return raised the term, moved the leader or disturbed an append. It exits with 0 only
// when everything held; otherwise the data folder is kept.
//
// What it does not do: it takes no power away from a disk (the simulations do), and it measures no throughput.
package main
