// Package clienttest is a storage in memory, and a ledger's group, for tests of programs that use pkg/client and
// pkg/client/ledger.
//
// A Storage listens on a loopback port and serves MessageService and StorageAdminService. Its log is a byte slice in which
// a record is nothing but the message's body, its queues are lists; there is no replication, and roles and faults are
// what the test says:
//
//	a := clienttest.Start(t, clienttest.Options{})
//	a.SetMaster(false, "10.0.0.2:10911")   // puts answer NOT_MASTER and name that master
//	a.OnPut(func(m *client.Message) (storagev1.PutStatus, error) { ... })
//	a.Stop(); a.Restart()                   // as kill -9: connections break, memory stays
//
// A Ledger is a group of nodes that share one log: what is appended is committed at once, and who leads is what the test says.
//
//	g := clienttest.StartLedger(t, 3)
//	g.Lead(2)                               // n2, in the next term; the others answer NOT_LEADER and name it
//	g.AfterAppend(func(n *clienttest.LedgerNode, body []byte) error { ... })  // the entry stands, the answer is lost
//	g.Nodes[2].Stop()
//
// What this package does not do: it is no model of durability, and its files are no RocketMQ files.
package clienttest
