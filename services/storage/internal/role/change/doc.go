// Package change carries out an operator's Promote: it hears the peers, has an open master hand over, and has the owner claim
// the role when epoch.DecideOpen says that this node may open.
//
//	slave ─▶ close to the master's end ─▶ Drain: puts held, waiting ones end ─▶ has all of its log ─┐
//	  │ no open master                                                                              ▼
//	  └──────────────────────▶ DecideOpen says OpenAsk ◀── else NOT_PROMOTED, nothing has changed ──┘
//	                                    │ Claim: saved as a master that is not open, link to the upstream ended
//	                                    ▼
//	                       as a starting master: promises, open; until it is open or demoted
//
// Draining is for nothing but comfort: it lets the waiting puts of the old master be confirmed and keeps the pause short.
// Whatever a master takes that does not hold its puts back long enough is copied behind the promises, as by a starting master.
//
// What this package does not do: it owns neither lineage nor role (Owner does), and asks for no promises (the work of a master
// that is not open does, as after a start).
package change
