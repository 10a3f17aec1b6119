// Package register tells RocketMQ's name servers that this node is the broker's master, so that Java slaves find it without a change to
// their configuration.
//
//	open master ─▶ for each name server: connect ─▶ 103 ─▶ 30 s ─▶ 103 ─▶ ...   on one connection
//	                                        ▲  lost, refused ──▶ backoff with jitter ─┘
//	no longer  ─▶ 104 ─▶ closed
//
// A name server drops a broker 120 s after the last 103, and at once when the connection closes. Each 103 has all topics, so that clients
// find the broker's slaves; two topics that a Java broker registers too are always among them: a name server of version 5 refuses a broker
// that registers exactly one, and a slave that may act as master takes itself for alone without the second.
//
// RocketMQ's names: BrokerOuterAPI#registerBrokerAll and #unregisterBrokerAll.
//
// What this package does not do: it reads no routes, and does not look at what name servers say of other brokers.
package register
