// Package telemetry gives a process its logger, its OpenTelemetry providers and its debug listener.
//
// Open makes them; Run serves the debug listener (/metrics for Prometheus, /healthz, /readyz, /debug/pprof) until its
// context ends and then flushes within a budget of its own. Spans and metrics go to an OTLP collector, spans to standard
// output, or nowhere, as Config says. Metrics are always at /metrics.
//
// Telemetry must never hurt what it watches:
//
//	span ends -> bounded queue -> batch -> exporter
//	                 | full          | failed, or the budget of the shutdown is over
//	                 +-> dropped <---+      counted in telemetry.spans.dropped, reported when it begins and ends
//
// A collector that is absent, refuses, or never answers costs the queue's memory and nothing else.
//
// What this package does not do: no instrument of any other package lives here, nothing is registered globally except
// OpenTelemetry's error handler, and logs go to one writer only.
package telemetry
