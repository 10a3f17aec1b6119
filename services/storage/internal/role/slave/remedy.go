package slave

import (
	"cmp"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
)

// What most remedies come down to.
const (
	byItself = "none is needed: the link is made again by itself; where this repeats, "
	ownLog   = "look at this node's log"
)

// general are the remedies of reasons whose errors name none.
var general = map[string]string{
	// A change of the group.
	"STEPPED_DOWN":       "none is needed: this node is about to follow the new master",
	"DEMOTED":            "promote a node: until then nobody takes puts",
	"PROMOTING":          "wait: this node is about to open",
	"PROMISED":           "wait: a new master is about to open. If none does, look at the Status of the peers",
	"NEW_EPOCH":          byItself + "look at the Status of the peers",
	"REPLACED":           "none is needed: a newer link of the same node took over. Where two take turns, give each node a brokerId of its own",
	"REVOKED":            byItself + "look at the upstream's log",
	"HISTORY_CHANGED":    byItself + "look at the upstream's Status",
	"NOT_OPEN":           "wait until this master has opened: its Status says what it waits for",
	"CANDIDACY_ENDED":    "none is needed: it is tried again. Where this repeats, two nodes try to become master: demote one of them",
	"NOT_MASTER":         "look at the Status of the peers",
	"NOT_PROMOTED":       "look at the Status of the peers",
	"PROMOTION_HALF_WAY": "wait, or give it up with `tandemctl demote NODE`",
	"NOT_DRAINED":        "look at the Status of the master",
	"HELD_TOO_LONG":      "none is needed: puts are taken again",
	"STOPPED":            "start the storage again",
	"COPIED":             "none is needed: the log is copied",
	"SERVER_STOPPING":    "start the upstream again",
	"BAD_LINEAGE":        "restore tandem/lineage, or start the node as a slave in an empty folder",
	"BAD_EPOCH_LIST":     "look at tandem/lineage of the node that sent it, and run the same version on both",
	"BAD_CHECKSUMS":      "run the same version on both nodes",
	"RANGE_OUTSIDE_LOG":  byItself + "compare the Status of both nodes",

	// A link.
	"LINK_ENDED":      byItself + "look at the upstream's log",
	"LINK_BROKEN":     byItself + "look at the network between the nodes",
	"LOG_CLOSED":      "none is needed after a cut: the link is made again. Else the log has failed: " + ownLog,
	"UPSTREAM_SILENT": "look at the upstream and the network between: it may be stopped or overloaded",
	"CONNECT_FAILED":  "check that the upstream runs, and its haAdvertise",
	"APPEND_FAILED":   ownLog,

	// The log of this node.
	"DISK_FULL":           "free some space on this node's disk, or enlarge it: it goes on by itself",
	"FOLDER_LOCKED":       "stop the other process that uses the folder",
	"FILE_CORRUPT":        "restore the file from a copy",
	"FILE_SIZE":           "check this node's mappedFileSizeCommitLog, or start it in an empty folder",
	"FILE_MISSING":        "bring the file back, or start this node in an empty folder",
	"FILE_MISPLACED":      "move the file out of commitlog/",
	"FILE_BUSY":           "none is needed: it is tried again when the readers are done",
	"SYNC_FAILED":         "the disk has failed: replace it, then start this node in an empty folder",
	"RECORD_TOO_LARGE":    "raise mappedFileSizeCommitLog, or lower maxMessageSize",
	"OFFSET_GAP":          byItself + "compare both logs with `tandemctl verify`",
	"OFFSET_OUT_OF_RANGE": byItself + "compare both logs with `tandemctl verify`",
	"LOG_CUTTING":         "none is needed: it is tried again after the cut",
	"ROLLBACK_STALE":      byItself + ownLog,
}

// General is the remedy of a reason whose error names none; "" for one that is not known here.
func General(reason string) string { return general[reason] }

// Reason returns a word for Status for any error.
func Reason(err error) string {
	if e := telling(err); e != nil && e.Reason != "" {
		return e.Reason
	}
	return "FAILED"
}

// Remedy returns what an operator can do about err, else what it says.
func Remedy(err error) string {
	if err == nil {
		return ""
	}
	if e := telling(err); e != nil {
		remedy := cmp.Or(e.Remedy, general[e.Reason], err.Error())
		if why := peers.Unreached(e); why != "" { // no reason in Status says it
			return why + ": " + remedy
		}
		return remedy
	}
	return err.Error() + ": " + ownLog
}

// telling returns the error that an operator has to know: a full disk below whatever it led to, else the outermost.
func telling(err error) *errdefs.Error {
	first := errdefs.As(err)
	for e := first; e != nil; e = errdefs.As(e.Cause) {
		if e.Class == errdefs.ResourceExhausted {
			return e
		}
	}
	return first
}
