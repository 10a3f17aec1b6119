// Package role says whether this node takes changes, and makes it fit to (RocketMQ: BrokerPreOnlineService, for this part).
//
//	           storage: open master of reign E
//	┌───────┐ ─────────────────────────────────▶ ┌─────────┐ tables whole, peers heard ┌──────┐
//	│ slave │                                    │ opening │ ────────────────────────▶ │ open │
//	└───────┘ ◀───────────────────────────────── └─────────┘                           └──────┘
//	 follows    storage: no master, or silent          ◀──── the reign ends: changes wait or are refused,
//	 (syncer)                                                 gathered commits are saved, then the node follows
//
// A node that opens does, in this order, and takes no change before:
//
//  1. It asks each peer and joins what differs into its own tables: offsets as their maximum, topics and groups the newer. It waits
//     for peers up to StartWait; a table of its own of which both copies are broken, until a peer has given it a whole one.
//  2. When no table has seen this reign yet, it resets offsets that lie behind the end that their queue had where the reign began:
//     what was cut from the log will be written anew, and must be read.
//  3. It stamps all tables with the reign: whoever has followed it refuses masters of lower reigns from then on.
//
// Who is asked learns of the reign by that, and answers when nothing of a lower one changes anything there any more: no client's change,
// no transfer from a master, no other opening. So what the answer shows is all that the node has to know of it.
// It has saved the reign before it answers (package told). Else a node whose storage has not heard of it, and still says that it leads
// in a lower one, would take changes of topics and groups after a restart that are lost when it follows.
//
// Peers that did not answer are asked on while the node leads, as is a slave that shows offsets ahead of the node's own: what
// they have is joined when they answer. So an offset that was committed anywhere counts everywhere in the end.
//
// What this package does not do: it promotes nobody. The storage does, or the configuration of a node that runs without one.
package role
