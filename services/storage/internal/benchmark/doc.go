// Command benchmark is one process of a benchmark: a master's or a slave's inside, without roles, and of gRPC with the control
// stream only; or one end of a limit that they are compared with. deploy/e2e/bench starts several of it and tells each what
// to do.
//
// It reads a command a line, a verb and key=value words, and answers each with a line of JSON: numbers, texts, or an error.
// It ends with its standard input.
//
//	open, close       a storage folder: log, queues, dispatcher
//	lead              master: store and listener       grant, fill, put, allocs, acked
//	join, arrived     slave: one stream                leave, reset
//	serve             limits: the receiving end        stream, ping
//	spent, profile    of this process
//
// The limits say what the machine gives to whoever does nothing else: `stream` writes 256 KiB at a time from a window of
// 8 MiB to a reader of 256 KiB; `ping` sends 212 bytes, as a frame with a message of 200 has, and waits for 8.
//
// What this package does not do: it compares nothing and prints for no person.
package main
