// Package link is what both ends of a replication stream need of a connection: reading with a limit on the peer's silence,
// sending frames of a log with a limit on its taking none, a wait that two sources can end, and the errors these end with.
//
//	Sender:  View or FileAt ─▶ [head body head body ...] ─▶ one writev, or send(MSG_MORE) + sendfile
//	                 ▲                   │ a slice of time is over, something went
//	                 └── lease returned ─┘
//
// Reader and Reporter are a slave's two directions, Reader and Sender a master's; Lobby is where a listener's connections are
// until they have said who they are.
//
// A Sender decides how bytes go, not when: package replication does that.
package link
