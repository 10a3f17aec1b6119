// Command bench measures the product beside what the machine can do, and prints ratios.
//
//	make bench               all rows
//	make bench ROWS=3,4      some
//	go run ./deploy/e2e/bench -rounds 9 -congestion reno
//
// A shared or virtual machine is faster or slower from one minute to the next, so only what was measured in the same round
// is compared. A round measures every probe once, one after the other; a row is computed within each round, and its line
// has the median of the rounds, the least and the greatest.
//
//	round:  plain stream, streams of the product ... ping-pong, puts at c = 1, 64, 512 ... puts with 1 to 8 slaves
//
// Master, slaves and the ends of the limits are processes of services/storage/internal/benchmark, which is built first and
// told what to do over its standard input. Puts are calls in the master's process: what a client and gRPC cost is not in
// them. All goes over loopback, with the same congestion control for product and limits. Streams go to files on a disk
// (-disk), about 1 GiB each, removed after each measurement; puts to files in memory (-mem), so that nine logs do not share
// one disk.
//
// The second table has the numbers behind the ratios and what they cost all processes in CPU, which says more than a rate on
// a machine that others use too. -profile keeps the profiles of the first round.
//
// A new row is a line in rows.go, what it measures one in probes.go.
package main
