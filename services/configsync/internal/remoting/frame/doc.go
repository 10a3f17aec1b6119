// Package frame is the format of RocketMQ's remoting: one header, JSON or binary, and one body per frame. FORMAT.md has the bytes.
//
//	┌────────┬──────────────┬────────┬──────┐
//	│ length │ type, length │ header │ body │
//	└────────┴──────────────┴────────┴──────┘
//	  ParsePrefix              Parse    as it is
//
// Lengths are checked before anybody reads on, so what a peer claims costs nothing. Both header types are read in every
// form that RocketMQ's own and other clients write; what is unknown is kept where it does no harm (codes, languages, fields) and
// refused where it does.
//
// RocketMQ's names: RemotingCommand is Command, RocketMQSerializable and RemotingSerializable are its two encodings.
//
// What this package does not do: it reads no connection and knows no meaning of a code.
package frame
