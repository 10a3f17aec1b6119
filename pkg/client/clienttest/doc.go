// Package clienttest is a storage in memory, for tests of programs that use pkg/client.
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
// What this package does not do: it is no model of durability, and its files are no RocketMQ files.
package clienttest
