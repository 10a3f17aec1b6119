// Package ledger is what a Go program imports to use a Tandem ledger: append entries to a group's log, read and follow it, look
// after its nodes. Where DLedger has DLedgerClient, here are an Appender that knows what became of an append, and reads that
// see what was acknowledged.
//
//	c, err := ledger.Dial(ctx, ledger.Options{Addresses: []string{"10.0.0.1:20911", "10.0.0.2:20911", "10.0.0.3:20911"}})
//	defer c.Close()
//	r, err := c.Appender(ledger.AppenderOptions{}).Append(ctx, []byte("hello"))
//
// # Where an entry is
//
// An append has one of three outcomes, and the package never blurs them:
//
//	(result, nil)            committed: on a majority, and there to stay.
//	(nil, ErrAppendUnknown)  the request left, and nothing said in time what became of it: the entry may stand, or come to.
//	(nil, other error)       the entry is not in the log.
//
// # Once
//
// An Appender has a random id and numbers its entries. The group remembers the ids and numbers of its last entries, so that an
// append that is sent again, to the same leader or the next one, stands once: by default whatever went wrong is tried again until
// the deadline. AppenderOptions.NoKey leaves the numbers out; then only what is certainly not in the log is sent again.
//
// # The stream
//
// Sender gathers bodies into requests of AppendStream while the ones before are on their way; answers are cumulative:
//
//	Send ──▶ [ waiting ][ sent, not answered ] ──▶ callbacks, in the order of Send
//	           │    ▲            │
//	  Run:     └────│───────────▶ AppendStream of the leader
//	                └─ the stream broke: all of it again, to the next leader (NoKey: what was not sent)
//
// Waiting and sent entries together are bounded by MaxInFlight and MaxInFlightBytes; Send blocks while they are full.
//
// # Which node
//
// Appends go to the leader: the node that last accepted, the one that NOT_LEADER names, or the one that the nodes agree on when
// all addresses are asked. Reads go to the first address that answers, and from there to the next; linearizable ones ask the
// leader about the commit index, whoever answers them. Admin speaks to exactly one node.
//
// Entries and statuses are the generated types of tandem.ledger.v1: their comments say what each field means.
//
// What this package does not do: it starts no goroutine outside Run, Stream, a call of yours and gRPC itself; it keeps no id
// beyond the life of an Appender or Sender, so that what a program that has crashed appended is not recognised.
package ledger
