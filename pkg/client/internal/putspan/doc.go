// Package putspan makes the producer's spans of puts, named and attributed as OpenTelemetry's conventions for messaging ask.
//
// What this package does not do: it passes no trace context on.
package putspan
