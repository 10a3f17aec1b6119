// Package rocketmq makes the processes of a real RocketMQ, for what runs beside it: interop and bench.
//
//	Resolve      the jars of a version, from Maven Central
//	Java         a JVM with them; NameServer and Broker are two, on folders of their own
//	Connect      a Java program that is told by lines what to do, as Load.java here: RocketMQ's own client, measured
//
// It ends no process and takes no port: who uses it does. It knows no format of RocketMQ's. Needs java 17 and mvn.
package rocketmq
