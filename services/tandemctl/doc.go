// Tandemctl is Tandem's command line: it puts and reads messages, shows what nodes do, compares their logs, does the same
// for a ledger's group, looks after topics, groups and offsets, and starts a playground on one machine. Everything it does is a
// public gRPC call (pkg/client), but for the playground, which starts `storage`, `configsync` or `ledger` binaries as child processes.
//
//	main.go          signals and exit code
//	root.go          global flags, the client that commands share
//	errors.go        what an error means, what to do next, exit codes 0 (done) 1 (failed, differs) 2 (usage)
//	output.go        tables, JSON (one object a line), sizes
//	words.go         line width, names of flags and of this program in what is said, the message limit
//	input.go         stdin that a signal interrupts
//	nodes.go         asks the nodes of a service and shows what they say: what status, config status and ledger status share
//	put.go get.go tail.go status.go verify.go queues.go flush.go range.go playground.go change.go rollback.go replay.go
//	scrub.go repair.go bench.go ledger.go ledger_*.go topic.go group.go offset.go config.go config_*.go
//	                 one command each, or a few that belong together
//
// Commands write results to stdout and everything else to stderr; nothing needs a terminal, and where there is one status
// -w and verify redraw in place.
package main
