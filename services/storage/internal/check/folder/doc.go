// Package folder checks a store folder that nobody uses, Tandem's or RocketMQ's, and changes nothing in it: `storage check`.
//
//	lock, shared ─▶ abort, checkpoint, lineage, summary, notes ─▶ files of log and queues ─▶ check.Records
//	                       └───────────── held against the end that was found ◀──────────────────┘
//
// Files are opened read-only and read by pread; what is missing, too short, or not given by the disk is told and counts as zeros.
// Damage and notes are told apart (check.Finding.Note): a crashed folder that recovers by itself is not damaged, so a torn end
// behind what was durable, units behind the log and records without units are notes then. Ranges kept below rollback/ and repair/
// are listed as notes.
//
// What this package does not do: it looks into neither key index nor ConsumeQueueExt, config tables nor the ranges that are kept.
package folder
