// Package slave follows: it finds an upstream, asks it, does what the answer asks for in the order that survives a crash, and
// streams until the link ends.
//
//	find ─▶ Follow ─▶ first answer ─▶ links below end ─▶ rollback kept, synced ─▶ checkpoint, log cut, synced ─▶ list saved
//	 ▲        ▲  │ COMPARE                                                                                          │
//	 │        └──┘ sums                  Readable, revocation ◀── control stream │ raw stream ──▶ log ◀──────────────┘
//	 └──────── pause with jitter ◀───────────────── the first of both to end
//
// The same session, with Copying, fetches what a better-ranked log has more for a master that starts.
//
// What this package does not do: it owns neither lineage nor links (Owner does), decides nothing (epoch does), and moves no
// byte of the log itself (Puller does).
package slave
