package epoch

import (
	"fmt"
	"slices"
)

// Action is an upstream's word on a link. The numbers are those of the wire.
type Action uint8

// Actions.
const (
	ActionUnset    Action = iota
	ActionStream          // from the slave's own end
	ActionTruncate        // to Offset, then stream
	ActionReset           // begin anew at Offset, then stream
	ActionRefuse          // Reason and Remedy say why
	ActionRevoke          // the link ends
	ActionProgress        // Readable and End are new
	ActionCompare         // find by checksums how far both logs are equal below Offset, then follow again
)

var actionNames = [...]string{"unset", "stream", "truncate", "reset", "refuse", "revoke", "progress", "compare"} //nolint:gochecknoglobals // a table

// String returns the action in lower case.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Reasons of REFUSE.
const (
	ReasonWrongCluster  = "WRONG_CLUSTER"
	ReasonSameNode      = "DUPLICATE_NODE_ID"
	ReasonCycle         = "CYCLE"
	ReasonStaleEpoch    = "STALE_EPOCH"
	ReasonNotOpen       = "NOT_OPEN"
	ReasonFileSize      = "FILE_SIZE_DIFFERS"
	ReasonAhead         = "AHEAD_OF_UPSTREAM"
	ReasonBadRequest    = "BAD_FOLLOW_REQUEST"
	ReasonBadAnswer     = "BAD_FOLLOW_ANSWER"
	ReasonRollbackFull  = "ROLLBACK_FULL"
	ReasonTooManySlaves = "TOO_MANY_SLAVES"
)

// NothingEqual in ComparedTo: the slave has compared and found not one equal byte.
const NothingEqual = -1

// FollowRequest is a slave's question. Offsets and sizes are in bytes.
type FollowRequest struct {
	Cluster, BrokerName string
	NodeID              int64
	Address             string // gRPC, host:port
	Epochs              List
	Promise             Promise
	End, First          int64
	FileSize            int64 // 0: it has no files
	TailChecksum        uint32
	TailSize            int64
	MaxFrame            int32
	Flushes             bool    // the slave reports what it has flushed, not what it has written
	Downstream          []int64 // node ids below the slave, itself included
	ComparedTo          int64   // equal up to here by checksums; 0: not compared; NothingEqual
}

// Known returns the newest reign that the slave holds or has promised.
func (r FollowRequest) Known() Promise { return higher(r.Epochs.Last(), r.Promise) }

// FollowAnswer is the upstream's word: the first one decides, later ones tell.
type FollowAnswer struct {
	Action         Action
	Offset         int64
	Reason, Remedy string
	Epochs         List
	FileSize       int64
	FrameSize      int32
	Token          [16]byte
	HAAddress      string // raw listener, host:port
	Readable, End  int64
	First          int64
	OpenMaster     bool
	Path           []int64 // node ids from the upstream to the master, itself included
}

// Tail says whether the slave's last stretch has the same bytes here.
type Tail uint8

// Answers.
const (
	TailUnknown Tail = iota // outside of the log, or not asked
	TailEqual
	TailDiffers
)

// Upstream is the node that is asked.
type Upstream struct {
	Cluster, BrokerName string
	NodeID              int64
	Lineage             Lineage
	Open                bool
	End, First          int64
	FileSize            int64
	MaxFrame            int32
	Path                []int64
	Tail                Tail
}

// DecideFollow answers a FollowRequest; granting the link (token, frames) is the caller's. stepDown: the caller of the
// request knows of a newer reign than this master: save SteppedDown and end its waiting puts before answering.
func DecideFollow(u Upstream, r FollowRequest) (a FollowAnswer, stepDown bool) {
	return law(0).decideFollow(u, r)
}

func (w law) decideFollow(u Upstream, r FollowRequest) (FollowAnswer, bool) {
	if a, bad := misfit(u, r); bad {
		return a, false
	}
	a, down, no := w.fenced(u, r)
	if !no {
		a = w.place(u, r)
	}
	return a, down
}

func refuse(reason, format string, args ...any) FollowAnswer {
	return FollowAnswer{Action: ActionRefuse, Reason: reason, Remedy: fmt.Sprintf(format, args...)}
}

// misfit refuses who does not belong here.
func misfit(u Upstream, r FollowRequest) (FollowAnswer, bool) {
	switch {
	case r.Cluster != u.Cluster || r.BrokerName != u.BrokerName:
		return refuse(ReasonWrongCluster, "the upstream, node %d, has brokerClusterName %s and brokerName %s, the slave %s and %s: give the slave the upstream's, or the address of its own group's node",
			u.NodeID, u.Cluster, u.BrokerName, r.Cluster, r.BrokerName), true
	case r.NodeID == u.NodeID:
		return refuse(ReasonSameNode, "give each node a brokerId of its own; %d is this node's too", r.NodeID), true
	case slices.Contains(r.Downstream, u.NodeID), slices.Contains(u.Path, r.NodeID):
		return refuse(ReasonCycle, "node %d already follows node %d: let one of them follow the master", u.NodeID, r.NodeID), true
	case r.First < 0 || r.End < r.First || r.Epochs.Check() != nil:
		return refuse(ReasonBadRequest, "offsets or epochs of the request contradict themselves: check the slave's tandem/lineage file"), true
	case tooFar(r.Known().Epoch, Top(u.Lineage, nil)):
		return refuse(ReasonEpochTooFar, "the slave knows of epoch %d, the upstream of none above %d: look at the epochs of all nodes with `tandemctl status`, then promote one of those with the highest",
			r.Known().Epoch, Top(u.Lineage, nil)), true
	case r.FileSize != 0 && r.FileSize != u.FileSize:
		return refuse(ReasonFileSize, "log files here have %d bytes, the slave's %d: rebuild the slave in an empty folder", u.FileSize, r.FileSize), true
	}
	return FollowAnswer{}, false
}

// fenced refuses who has promised to follow something newer than what this node serves, and everybody while a master is not
// open. down: this master has been told of a newer reign.
func (w law) fenced(u Upstream, r FollowRequest) (a FollowAnswer, down, refused bool) {
	theirs, mine := r.Known(), u.Lineage.Epochs.Last()
	if !w.holds(ruleFence) {
		theirs = r.Epochs.Last()
	}
	master := u.Lineage.Role.Master()
	if theirs.Epoch > mine.Epoch {
		down = master && theirs.Epoch > higher(u.Lineage.Known(), u.Lineage.Candidate).Epoch
		if w.holds(ruleLowRef) || down && w.holds(ruleNotOpen) {
			return refuse(ReasonStaleEpoch, "the slave has promised epoch %d, this node serves epoch %d: follow the newer master, or promote again",
				theirs.Epoch, mine.Epoch), down, true
		}
	}
	if theirs.Epoch == mine.Epoch && theirs.ID != mine.ID && w.holds(ruleLowRef) {
		return refuse(ReasonEpochConflict, "the slave knows another epoch %d: promote the node whose log is to be kept", mine.Epoch), down, true
	}
	if master && !down && !u.Open && w.holds(ruleNotOpen) {
		return refuse(ReasonNotOpen, "this master does not serve yet: its Status says what it waits for"), down, true
	}
	return FollowAnswer{}, down, false
}

// place finds the offset from which the slave can go on.
func (w law) place(u Upstream, r FollowRequest) FollowAnswer {
	a := FollowAnswer{
		Epochs: u.Lineage.Epochs, FileSize: u.FileSize, FrameSize: min(u.MaxFrame, r.MaxFrame), End: u.End, First: u.First,
		OpenMaster: u.Lineage.Role.Master() && u.Open, Path: u.Path,
	}
	m := meet(u.Lineage.Epochs, u.First, u.End, r.Epochs, r.First, r.End, u.Tail, r.ComparedTo)
	if m.compare {
		a.Action, a.Offset = ActionCompare, m.at
		return a
	}
	if m.at < r.End && m.at == u.End && !u.Lineage.Role.Master() && w.holds(ruleChainAhead) {
		return refuse(ReasonAhead, "the slave ends at %d, this node, a slave itself, at %d: wait, or let it follow the master", r.End, u.End)
	}
	a.Action, a.Offset = m.act(u.First, r.First, r.End)
	return a
}

// meeting is where two logs part: at is exact, or, with compare, the bound below which checksums have to tell.
type meeting struct {
	at      int64
	compare bool
}

// meet finds where a slave's log parts from its upstream's.
func meet(up List, upFirst, upEnd int64, own List, first, end int64, tail Tail, compared int64) meeting {
	at, common := Part(up, upEnd, own, end)
	known := common > 0 && (at != end || tail != TailDiffers)
	switch {
	case compared == NothingEqual:
		return meeting{}
	case compared > 0 && (compared < at || tail != TailDiffers || at != end):
		return meeting{at: min(at, compared)}
	case known:
		return meeting{at: at}
	case at > max(upFirst, first):
		return meeting{at: at, compare: true}
	case common > 0:
		return meeting{at: at}
	}
	return meeting{} // no bytes that both hold: what cannot be compared is not common
}

// act turns a meeting into what the slave does.
func (m meeting) act(upFirst, first, end int64) (Action, int64) {
	switch {
	case end <= first && end == upFirst:
		return ActionStream, end
	case end <= first, m.at < upFirst, m.at < first:
		return ActionReset, upFirst
	case m.at == end:
		return ActionStream, end
	}
	return ActionTruncate, m.at
}
