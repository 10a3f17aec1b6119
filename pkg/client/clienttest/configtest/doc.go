// Package configtest is a group of config sync nodes in memory, for tests of programs that use pkg/client/config and
// pkg/client/consumer.
//
// All nodes share one set of tables: what is changed is everywhere at once. Who leads is what the test says:
//
//	g := configtest.Start(t, 2)
//	g.Lead(1)                    // the next reign; the other nodes answer NOT_MASTER and name it
//	g.SetEnd("orders", 0, 100)   // as the storage would tell: commits behind it are refused
//	g.Nodes[0].Stop()            // as kill -9: connections break, memory stays
//
// What this package does not do: it checks next to nothing, saves nothing, and its files are no RocketMQ files.
package configtest
