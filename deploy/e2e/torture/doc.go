// Command torture runs whole storages as processes and mistreats them: a sync master and two slaves are killed with -9 and stopped
// with SIGSTOP, the links between them are cut, stalled and delayed, and masters are promoted and demoted, while clients put and read.
//
//	writers ──▶ n0 ◀─ proxies ─▶ n1 ◀── readers
//	              ▲              ▲
//	              └── proxies ─▶ n2
//
// Every node reaches each other node's gRPC port through a proxy of that pair, and its raw port through a proxy of that node; clients
// speak to the nodes directly. After each round everything is healed and the history is checked:
//
//   - a message answered PUT_OK is on every node exactly once, at the offset it was answered with
//   - a message that the client says is not stored is on no node, and none stands twice
//   - each reader saw each message once and in queue order
//   - with ha.refuseWithoutReplicas nothing that a reader saw vanished, without it nothing that was also answered PUT_OK
//   - logs and queues of all nodes are the same bytes, by checksum and by file
//   - no node died by itself, and all are in sync within 60 s
//
// A cluster lives for a few rounds, then a fresh one follows, with refuseWithoutReplicas in every second one. The seed is printed;
// -seed repeats the same plan of faults, not the same interleaving. It exits with 0 only when everything held; otherwise the data
// folder is kept. It loses no disks and forces nothing: the in-process simulations do.
package main
