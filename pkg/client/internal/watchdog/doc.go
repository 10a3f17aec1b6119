// Package watchdog notices a stream that has fallen silent although its other side owes a word.
//
// What this package does not do: it knows no gRPC and decides nothing about retries.
package watchdog
