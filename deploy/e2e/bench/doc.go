// Command bench measures the product beside what the machine can do, and beside others, and prints ratios.
//
//	make bench               all rows
//	make bench ROWS=3,4      some
//	make bench ROUNDS=1      to try something
//	go run ./deploy/e2e/bench -congestion reno
//
// A shared or virtual machine is faster or slower from one minute to the next, so only what was measured in the same round
// is compared. A round measures every probe of its part once, one after the other; a row is computed within each round, and
// its line has the median of the rounds, the least and the greatest.
//
//	inside:   plain stream, streams of the product ... ping-pong, puts at c = 1, 64, 512 ... puts with 1 to 8 slaves
//	outside:  clients at c = 1, 64, 512: PutStream, unary Put, a call that does nothing, Redis, RocketMQ
//	once:     nine config sync nodes with large tables, for minutes, in the first round only (ROWS=config)
//
// c is how many are under way at a time: callers that each wait for their own put before the next one, or on a PutStream one
// sender that goes on while there are less than c without an outcome.
//
// Inside, master, slaves and the ends of the limits are processes of services/storage/internal/benchmark, which is built first
// and told what to do over its standard input. Puts are calls in the master's process: what a client and its gRPC cost is not
// in them. The control stream is: by it a slave hears what it may dispatch, at the product's pace. Streams go to files on a
// disk (-disk), about 1 GiB each, removed after each measurement; puts to files in memory (-mem), so that nine logs do not
// share one disk.
//
// Outside, a sync master and its slave are the storage's own binary with files in memory, and this process is the client. So
// are those that they stand beside, each confirmed by its replica from memory:
//
//	Redis       SET and WAIT 1. A connection that waits takes no further command, so that c under way are c connections; beside
//	            that, as the most that one connection can do, c SETs before one WAIT, again and again
//	RocketMQ    5.3.3 with inSyncReplicas=2, else it waits for no slave; its own client, in a JVM of its own, with a thread for
//	            each caller; all JVMs with the default collector and compiler, warm. Its log files have the size of the product's,
//	            256 MiB: with files of 256 KiB, which tests like, it would be three times slower
//
// The config sync service's tables (rows 9 and 10) are measured inside a process of services/configsync/internal/benchmark, which
// has both sides, over loopback and with gRPC; its commits (row commit) on the service's own binary. Row config is a master on
// RocketMQ's files of 100,000 topics, 20,000 groups and 1,000,000 offsets, and eight slaves that begin with nothing; memory is what
// the system counts as resident. A change is seen when the slave's own watch stream tells of it.
//
// What is not installed is not measured, and its rows say so. RocketMQ's idle JVMs take about a twentieth of two CPUs while the
// others of their part are measured.
//
// All goes over loopback, with the same congestion control for product and limits. The second table has the numbers behind the
// ratios and what they cost all processes in CPU, which says more than a rate on a machine that others use too. -profile keeps
// the profiles of the first round, of this process and of storages too.
//
// On two CPUs that all processes share, Linux' fair scheduler often wakes a thread on the CPU of its waker while the other is idle:
// of puts at c = 512 that idle time is a fifth (`perf sched timehist`). `chrt -r 1 go run ./deploy/e2e/bench` measures all sides
// without it.
//
// A new row is a line in rows.go, what it measures one in probes.go.
package main
