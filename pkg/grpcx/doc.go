// Package grpcx makes the gRPC servers and clients of Tandem, all alike.
//
// A Server carries TLS that follows its files, the interceptors below, health, reflection, keepalive and the limits on a
// message's size; Serve ends within a budget and returns nil only when no handler runs any more. A Dialer makes the other
// end with limits and keepalive that fit. Errors cross the wire by ToStatus and FromStatus: class, reason, message,
// field, metadata, remedy and retry pause arrive; what was wrapped around an errdefs.Error, and causes that are not
// errdefs errors (they may hold paths), stay on the server, in its log.
//
//	call -> otelgrpc -> tracked -> ToStatus -> logged -> recovered -> deadline -> handler
//
// The end of a server:
//
//	ctx ends -> NOT_SERVING, no new connection, contexts of streams end with ErrDraining
//	         -> after 2/5 of DrainTimeout: streams still open are ended, whatever their handler does
//	         -> after DrainTimeout: connections are closed, contexts of unary calls end
//	         -> after DrainTimeout/2 more: ErrHandlersRunning names the methods that would not end
//
// What this package does not do: it decides nothing about retries or about which node to ask (pkg/client does), and it
// authenticates by certificates only.
package grpcx
