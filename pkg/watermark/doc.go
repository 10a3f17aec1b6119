// Package watermark is a number that only grows and that anyone may wait for.
//
// It is how news travels upwards in Tandem: the owner of some data calls Advance, whoever needs the data to be there calls
// Wait with a context of its own. It stands where RocketMQ has WaitNotifyObject, lists of GroupCommitRequests and
// futures; unlike these, a waiter that times out delays nobody.
//
//	      Advance(n)                    Wait(ctx, m)
//	owner ──────────▶ [ value n ] ◀────────────────── many
//	      Close(err)        │
//	                        └─ waiters with m <= n go, in the order of m
//
// A mark never goes back. An owner whose data is cut closes the mark, usually with ErrTruncated, and makes a new one.
// Waiting allocates nothing once the pool is warm, one timer serves all waiters of a mark, and waking happens outside the lock,
// which Advance takes only when it has somebody to wake.
//
// What this package does not do: it has no goroutine and keeps no history.
package watermark
