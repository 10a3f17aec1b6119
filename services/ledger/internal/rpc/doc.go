// Package rpc is the only door of a ledger for clients and operators: LedgerService, LedgerAdminService and TransferLeadership. What
// members say to each other is package peer's.
//
// A handler checks the request field by field, calls the owner of the rule (once, node) and translates the answer. Errors are of
// errdefs and counted by reason; one that names the leader carries its address too. What was not begun says so; what was begun and
// not seen to its end is UNKNOWN.
//
//	caller's deadline ── margin ──▶ the append's own, so that the caller hears UNKNOWN and not a dead line
//
// No reply exceeds the limit that the server was given.
//
// What this package does not do: it decides nothing and keeps no state between calls.
package rpc
