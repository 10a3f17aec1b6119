// Package acks counts which slaves have which offset of the log. Its Tracker stands where
// RocketMQ has GroupTransferService, push2SlaveMaxOffset and the scan over HAConnections.
//
//	Report(member, offset) ─▶ per member: ack ─▶ best per slave, sorted ─▶ Acked(1) >= Acked(2) >= ... ~> waiters
//
// A member is one session; several members with one Key are one slave and count once, with the best of their reports. What a
// member reported goes when it leaves. Marks only grow, so what k slaves have confirmed at one moment stays confirmed.
//
// A reign is the time between Open and Shut. Each has marks of its own, which its end closes: whoever still waits gets the
// reason. Reports below the start of the reign's own epoch confirm nothing.
//
// What this package does not do: it does not judge whether a report is legal, and knows no connection and no timer.
package acks
