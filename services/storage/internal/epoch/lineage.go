package epoch

import (
	"fmt"
	"reflect"
	"slices"
)

// Role of a storage. Sync and async masters differ in what a put waits for and in what opening needs.
type Role uint8

// Roles.
const (
	RoleUnset Role = iota
	RoleSlave
	RoleAsyncMaster
	RoleSyncMaster
)

var roleNames = [...]string{"unset", "slave", "async-master", "sync-master"}

// String returns the role as the lineage file has it.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Master reports whether r is one of the master roles.
func (r Role) Master() bool { return r == RoleAsyncMaster || r == RoleSyncMaster }

// Lineage is all that a storage must not forget about its log's history. It is saved before anything that it says is
// acted on. Values are passed around freely: nobody changes the list of one that is in use.
type Lineage struct {
	Role   Role
	Epochs List
	// Promise is the newest reign that the node has promised to somebody, followed, or held itself. It follows nothing
	// lower, nor equal with another id.
	Promise Promise
	// Candidate is the reign that the node has asked others to promise and has not opened yet.
	Candidate Promise
	// Empty and Unclean say why the node may lack something that it once reported: it has no history yet or has lost its
	// lineage; its machine went down under an async flush. Both end when it has caught up with an open master.
	Empty, Unclean bool
	// Open says that the node was open master with the last epoch when this was saved.
	Open bool
	// SyncFlush is the flush mode that the node reported under.
	SyncFlush bool
	// Boot is the machine's boot id when this was saved.
	Boot string
	// Held is a flushed end of the log, bytes: less than this at a start means that something was lost, and stays known until
	// the log is cut on purpose, has caught up, or is opened as it is.
	Held int64
	// Cluster, BrokerName and FileSize, bytes, of the store when this was saved; zero values: not known. Nothing here is decided by
	// them; a start of another broker is refused by package role/saved.
	Cluster, BrokerName string
	FileSize            int64
}

// Known returns the newest reign that the node holds or has promised.
func (l Lineage) Known() Promise { return higher(l.Epochs.Last(), l.Promise) }

// Whole reports whether the node lacks nothing that it once reported.
func (l Lineage) Whole() bool { return law(0).whole(l) }

func (w law) whole(l Lineage) bool {
	return (!l.Empty || !w.holds(ruleEmpty)) && (!l.Unclean || !w.holds(ruleWhole))
}

// Clone returns a copy that shares nothing.
func (l Lineage) Clone() Lineage {
	l.Epochs = slices.Clone(l.Epochs)
	return l
}

// Boot is what a starting node finds.
type Boot struct {
	// Role that the config names.
	Role Role
	// Clean: the last stop was one (no abort file).
	Clean bool
	// ID of the machine's boot, "" where the machine tells none, and the flush mode from now on.
	ID        string
	SyncFlush bool
	// First and End of the recovered log, bytes.
	First, End int64
	// Lost: the log lacks bytes that were durable once.
	Lost bool
	// Restored: the lineage is an older copy, as the newest could not be read; what was promised since is forgotten.
	Restored bool
}

// NewLineage returns the lineage of a node that has none on disk: new, or a folder that RocketMQ wrote.
func NewLineage(b Boot) Lineage {
	l := Lineage{Role: b.Role, Boot: b.ID, SyncFlush: b.SyncFlush, Held: b.End}
	l.Empty = b.End <= b.First
	l.Unclean = !l.Empty && !b.Clean || b.Lost
	return l
}

// Booted returns the lineage after a start. A killed process loses nothing that was written; a machine that went down
// loses, under async flush, what was not flushed. Mastership on disk beats the config, which only says which kind of master.
func Booted(l Lineage, b Boot) Lineage {
	if !b.Clean {
		l.Open = false
		if (b.ID == "" || l.Boot != b.ID) && !l.SyncFlush {
			l.Unclean = true
		}
	}
	if b.End < l.Held || b.Lost {
		l.Unclean, l.Open = true, false
	}
	if b.Restored {
		l.Empty, l.Open = true, false
		l.Promise, l.Candidate = Promise{}, Promise{}
	}
	if l.Role.Master() && b.Role.Master() {
		l.Role = b.Role
	}
	if b.Clean {
		l.Held = max(l.Held, b.End)
	}
	l.Boot, l.SyncFlush = b.ID, b.SyncFlush
	return l
}

// Careful reports whether a node whose disk has saved may go on as next: what saved lacks makes the next start more careful, never
// less. An older boot id counts every crash as one of the machine, an async flush and a lower end were true before.
func Careful(saved, next Lineage) bool {
	if next.Held < saved.Held || saved.SyncFlush && !next.SyncFlush {
		return false
	}
	saved.Held, saved.Boot, saved.SyncFlush = next.Held, next.Boot, next.SyncFlush
	saved.Cluster, saved.BrokerName, saved.FileSize = next.Cluster, next.BrokerName, next.FileSize // name the store, decide nothing here
	return reflect.DeepEqual(saved, next)
}

// Opened returns the lineage of a node that opens reign p at the end of its log.
func Opened(l Lineage, end int64, p Promise, r Role) Lineage { return law(0).opened(l, end, p, r) }

func (w law) opened(l Lineage, end int64, p Promise, r Role) Lineage {
	l.Role, l.Open = r, true
	l.Epochs = w.appendEpoch(l.Epochs, end, p)
	l.Promise, l.Candidate = p, Promise{}
	l.Empty, l.Unclean = false, false
	l.Held = end
	return l
}

// SteppedDown returns the lineage of a node that is a slave from now on. A candidacy ends with it: only its holder could
// have opened that reign.
func SteppedDown(l Lineage) Lineage {
	l.Role, l.Open, l.Candidate = RoleSlave, false, Promise{}
	return l
}

// CaughtUp returns the lineage of a slave that holds, on its disk, all that an open master had when it followed.
func CaughtUp(l Lineage, end int64) Lineage {
	l.Empty, l.Unclean, l.Held = false, false, end
	return l
}
