// Package attempt says what a failed try of a put means for its message, and when and where it is tried again.
//
//	error ──Judge──▶ NotStored  certainly not, and another try would end the same way
//	                 TryAgain   certainly not, another try may succeed ──┐
//	                 Unknown    it may be stored ──────(with Resend)─────┴─▶ Retry.Next: the master that the error names,
//	                                                                        one found by asking, or a pause and again
//
// Retry goes on over whatever keeps puts from getting through, until its limit; its pauses become shorter near the end.
//
// What this package does not do: it makes no put and knows nothing of a Sender's order.
package attempt
