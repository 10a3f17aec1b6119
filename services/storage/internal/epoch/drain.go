package epoch

// Reasons why a master does not drain.
const (
	ReasonNotOpenMaster = "NOT_OPEN_MASTER"
	ReasonOtherReign    = "OTHER_REIGN"
)

// DrainRequest asks an open master to hold its puts back while the caller, who is about to be promoted, fetches the rest.
type DrainRequest struct {
	Cluster, BrokerName string
	NodeID              int64
	// Reign is the last one of the caller's list.
	Reign Promise
}

// DecideDrain says whether a node drains for the caller: it has to be the open master of the reign that the caller follows. A
// reason other than "" means that it does not. Draining decides nothing about who may be master: a master that takes puts
// again too early is one whose log ranks best, and is copied from.
func DecideDrain(l Lineage, open bool, r DrainRequest) (reason, remedy string) {
	switch {
	case !l.Role.Master() || !open:
		return ReasonNotOpenMaster, "promote again: this node is not the open master any more"
	case l.Epochs.Last() != r.Reign:
		return ReasonOtherReign, "wait until the node to be promoted follows this master, or force it"
	}
	return "", ""
}
