// Package refusal counts what a node refused, by the reason of the error: for Status, and as the metric ledger.refused.
//
// What this package does not do: it refuses nothing itself.
package refusal
