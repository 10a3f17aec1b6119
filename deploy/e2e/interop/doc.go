// Command interop runs Tandem beside the real RocketMQ, in both directions, and compares what both wrote. It resolves
// RocketMQ 5.3.3 and 4.9.7 from Maven Central and starts name servers, brokers and RocketMQ's own client on loopback.
//
//	a  RocketMQ 5.3.3 master ══▶ Tandem slave      joins in the middle of a load, killed with -9 twice
//	                         ══▶ RocketMQ slave    beside it
//	b  the same with 4.9.7
//	c  Tandem master on a RocketMQ master's folder ══▶ RocketMQ 4.9.7 slave, which then becomes a master
//	d  Tandem sync master ══▶ RocketMQ 4.9.7 slave, stopped and gone: what a put is told
//	e  DLedger 0.3.1.2 and Tandem's ledger write the folders of a group in turn, and each reads what the other wrote
//	f  RocketMQ 5.3.3 master ══▶ Tandem storage and config sync: the log, and all four tables while it lives
//	g  Tandem storage and config sync ══▶ RocketMQ 5.3.3 slave, found by a name server, which then becomes a master
//	h  the same with 4.9.7
//	i  RocketMQ 5.3.3 and 4.9.7 brokers start on the tables that Tandem wrote, and Tandem on what they left
//
// RocketMQ is the judge: its client's statuses, its files, its decoder (peer/Records.java), its consumer
// (peer/Client.java), its mqadmin, DLedger's store (peer/Ledger.java). Each scenario prints what it does and one line of result; the exit
// code is 0 only when nothing differed. Everything is under one temporary folder, ports are below 32768, and only processes that it started are ended.
//
// What it does not do: it reads no record by Tandem's own decoder, and knows no control stream. Needs java 17 and mvn.
package main
