// Command demo does Tandem's main job by itself and prints it: it takes a store folder that a real RocketMQ broker wrote,
// starts a sync master on it and two slaves, puts messages while nodes are killed, and proves at the end that all logs are
// the same bytes, that what RocketMQ wrote is untouched, and that every acknowledged message is on every node.
//
//	golden store ──▶ master ══▶ slave1
//	                    ╚═════▶ slave2
//
// The nodes are processes on loopback, or the containers of deploy/compose.yaml with -compose. It exits with 0 only when
// everything held.
package main
