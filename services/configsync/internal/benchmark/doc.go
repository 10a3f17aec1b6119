// Command benchmark is one process of a benchmark: a master's table of topics behind the gRPC service that slaves follow, a slave's
// side of it, and what both are compared with. deploy/e2e/bench starts it and tells it what to do.
//
// It reads a command a line, a verb and key=value words, and answers each with a line of JSON: numbers, or an error. It ends with
// its standard input, upon which it removes its folder.
//
//	open              a table of topics at dir, served on loopback
//	check, delta      a round without change, and one that brings one topic
//	fetch             that topic by a stream
//	empty             a unary call, and a stream, of the same service that do nothing
//	full              the whole table to a slave that has none; each time of another version
//	protobuf, json    the same topics marshalled and read back in memory, without a network
//	own-json          the same as a table, in RocketMQ's JSON
//	spent, profile    of this process
//
// What this package does not do: it compares nothing and prints for no person.
package main
