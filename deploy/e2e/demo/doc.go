// Command demo does Tandem's main jobs by itself and prints them.
//
// It takes a store folder that a real RocketMQ broker wrote, starts a sync master on it and two slaves, each with a config sync node
// beside it, and puts messages while nodes are killed. A consumer group reads half of them; the master's machine dies, a slave is
// promoted, and the group goes on there at its committed offsets. At the end all logs are the same bytes, what RocketMQ wrote is
// untouched, every acknowledged message is on every node, and the four tables are the same files.
//
//	golden store ──▶ master ══▶ slave1        ledger0 ◀══▶ ledger1
//	                   │ ╚═════▶ slave2            ▲╲       ╱▲
//	                config-master, -slave1, -slave2    ledger2
//
// Then a ledger of three elects its leader, which is killed under load; the next one is left alone with entries that nobody else
// has, killed too, and has them cut by the third when it is back. At the end every acknowledged append stands once, where its
// client was told, and all three logs are equal.
//
// The nodes are processes on loopback, or the containers of deploy/compose.yaml with -compose. It exits with 0 only when
// everything held.
package main
