// Package remoting holds one connection to a RocketMQ process, which speaks nothing but its own frames (package frame). What is said
// over it is in the packages below:
//
//	follow    a Java master's four tables, for a Tandem slave        this node ── 21 43 45 201 ──▶ Java master
//	serve     a Tandem master's four tables, for Java slaves         Java slave ── 21 43 45 201 402 906 ──▶ this node
//	register  where they find it                                     this node ── 103, every 30 s, 104 ──▶ name server
//
// Conn asks and waits for the answer, one question at a time. Lengths are checked before anything is read, bodies grow as their bytes
// arrive, and every wait ends with its context.
//
// RocketMQ's names: NettyRemotingClient is Conn, BrokerOuterAPI packages follow and register, AdminBrokerProcessor package serve.
//
// What this package does not do: no TLS, no ACL, no compression, nothing but requests of its own.
package remoting
