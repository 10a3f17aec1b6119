// Package mend is what makes replacing bytes inside of a log survive a crash, and what keeps the bytes that were replaced.
//
//	Keep: repair/<from>-<to>-<n> ─▶ Announce: tandem/repair ─▶ bytes into the log, synced ─▶ Withdraw
//	                                        └── a crash from here on: the next start does it again (Pending)
//
// FORMAT.md of package commitlog has the files.
//
// Nobody reads a file while bytes of it are replaced: who is refused a lease meanwhile waits (Mender.Wait).
//
// What this package does not do: it decides nothing about what is right, and locks nothing against cuts and flushes.
package mend
