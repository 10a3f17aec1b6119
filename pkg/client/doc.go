// Package client is what a Go program imports to use a Tandem storage: put messages, read and follow queues, look after
// nodes. Where RocketMQ has DefaultMQProducer, a pull consumer and DefaultMQAdminExt, here are Producer, Reader and Admin.
//
//	c, err := client.Dial(ctx, client.Options{Addresses: []string{"10.0.0.1:10911", "10.0.0.2:10911"}})
//	defer c.Close()
//	result, err := c.Producer(client.ProducerOptions{}).Put(ctx, &client.Message{Topic: "orders", Body: body})
//
// # Where a message is
//
// A put has one of three outcomes, and the package never blurs them:
//
//	(result, nil)            the storage answered; result.Status says where the bytes are. A status other than
//	                         StatusOK is no error: see Stored.
//	(nil, ErrOutcomeUnknown) the request left, the answer did not come: the message may be stored.
//	(nil, other error)       the message is not stored.
//
// Only what is certainly not stored is sent again by itself; ProducerOptions.Resend extends that to unknown outcomes,
// at the price of duplicates (both copies carry one UNIQ_KEY, so that a consumer can tell).
//
// # The sender's stream
//
// Sender gathers messages into requests of PutStream while the one before is on its way; answers are cumulative:
//
//	Send ──▶ [ waiting ][ sent, not answered ] ──▶ callbacks, in the order of Send
//	           │    ▲            │
//	  Run:     └────│───────────▶ PutStream of the open master
//	                └─ certainly not stored (or Resend): next stream, next master
//
// Waiting and sent messages together are bounded by MaxInFlight and MaxInFlightBytes; Send blocks while they are full.
//
// # Which node
//
// Puts go to the open master: the node that last accepted, the one that a NOT_MASTER error names, or the open master with
// the highest epoch among the addresses (and the upstreams of the slaves found there; FindMaster names it). Reads go to the first address
// that answers. Admin speaks to exactly one node.
//
// Messages, results and statuses are the generated types of tandem.storage.v1: their comments say what each field means.
//
// Below this package: config for topics, groups and offsets, consumer for whoever goes on where its group was, ledger for a ledger.
//
// What this package does not do: it keeps no consumer offsets (package consumer does), starts no goroutine outside Run, Stream, a call of
// yours and gRPC itself, and compresses nothing.
package client
