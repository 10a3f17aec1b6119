// Package faults has what a harness mistreats: processes that it kills and freezes, and links between them that it cuts, holds and
// slows down.
//
//	Ports      ports that a killed process finds again
//	Process    start, kill -9, SIGSTOP and SIGCONT, SIGTERM; notes an end that nobody asked for
//	Link       TCP connections that are passed on: Cut, CutAfter, Hold one way or both, Slow, until Heal
//
// What this package does not do: it knows neither storages nor ledgers, and makes no plan.
package faults
