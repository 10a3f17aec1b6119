// Package wire is the format of the raw replication stream: the 12-byte frame header, the 8-byte report and the preamble
// of a Tandem slave. FORMAT.md draws it and gives examples in hex.
//
//	slave                                          master
//	  │ magic(8) token(16)            Tandem only ──▶ │
//	  │ report = own end(8) ────────────────────────▶ │
//	  │ ◀──────────────── offset(8) size(4) body(size)│   size 0: heartbeat
//	  │ report(8) ──────────────────────────────────▶ │
//
// The frames and reports are those of RocketMQ's DefaultHAService (4.0 to 5.x). There, HAConnection's WriteSocketService
// writes the header and its ReadSocketService reads the report; HAClient is the other end.
//
// The package is pure: bytes in, values out, no allocation and no error that needs a message; its callers know the link
// and make the error. It does not read or write connections.
package wire
