// Package testkit is what tests of several packages share: real stores, crude peers, bad networks and what to compare at
// the end.
//
//	Golden       a store folder that a real RocketMQ wrote, unpacked for one test
//	FakeSlave    plain TCP client of a replication port: sends any bytes, reads and records frames
//	FakeMaster   plain TCP server: accepts a slave, reads its reports, sends any bytes cut anywhere
//	Proxy        sits on a link: delays it, makes one way go silent, cuts it after so many bytes
//	Leaks        goroutines, open files and heap are back at the end of a test
//	Diff         two store folders: log bytes from common start to common end, queue units
//
// All of them are for the goroutine of one test. What waits has a bound (Patience) and fails the test beyond it; nothing
// sleeps for a fixed time.
//
//	slave ── Proxy ── master        Up: what the client says        Down: what it is told
//
// What this package does not do: it knows no record and no gRPC service; who needs these in a fake builds on it.
package testkit
