// Package stray notices who calls a plain-text gRPC port and does not speak gRPC: a browser, a TLS client, a RocketMQ broker. gRPC
// itself hangs up on them without a word.
//
//	raw conn ─▶ Credentials.ServerHandshake ─▶ conn whose first 24 bytes are held against the HTTP/2 preface ─▶ gRPC
//	                                                     └── differ: report(raw, why), once
//
// What this package does not do: it refuses nobody, delays nothing, and says nothing of who hangs up before all 24 bytes have
// come, as those do who only look whether a port is open. Of TLS, package grpcx itself reports the handshakes that fail.
package stray
