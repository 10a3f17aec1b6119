// Package damage keeps the book of what this node knows to be wrong with its log and its queues, and serves around.
//
// Who meets damage enters it: the recovery at the start, the dispatcher, a scrub. A scrub that has read a stretch to its end, a
// repair and a cut strike out what is not there any more. Status and a metric show what is left.
//
// The book lives as long as the process: what lies below the stretch that a start reads through is known again when somebody
// meets it. It holds a bounded number of places; of those beyond it only the number is known, and that may be too high.
//
// What this package does not do: it looks for nothing and repairs nothing (packages check and repair do).
package damage
