// Package ballast keeps the garbage collector from running all the time in a process that holds little and makes much garbage.
//
// The collector runs when the heap has doubled. A service holds a few MiB, so under load it would collect tens of times a second, and
// each time takes a part of the cores from those who wait for an answer. The ballast counts as live, so that as much garbage as it is
// large may gather first. Nobody touches it, so it takes no memory.
//
// What this package does not do: it changes no setting of the collector, so GOGC and GOMEMLIMIT mean what they always do.
package ballast
