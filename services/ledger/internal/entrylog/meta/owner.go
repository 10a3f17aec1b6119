package meta

import (
	"slices"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Owner is whose log it is. What a node has promised it has promised in its name, and to these members: who counts others
// decides what the members of its group have not agreed to.
type Owner struct {
	Group   string        `json:"group"`
	Self    raft.NodeID   `json:"self"`
	Members []raft.NodeID `json:"members"` // ascending
}

// ErrOwner says that the folder is another member's, or that its group has other members.
var ErrOwner = errdefs.New(errdefs.FailedPrecondition, "FOLDER_OF_ANOTHER", "the folder belongs to another member or group").
	WithRemedy("give group, selfId and the ids in peers as they were when the group was begun (addresses may change), or use another storePath")

// ReadLogOf is ReadLog; ErrOwner, which names the key of the configuration, when the log is not o's. nil: anybody's.
func ReadLogOf(fsys vfs.FS, root string, o *Owner) (Log, bool, error) {
	l, ok, err := ReadLog(fsys, root)
	if err == nil && o != nil && l.Owner != nil {
		err = l.Owner.differs(o)
	}
	return l, ok, err
}

func (o *Owner) differs(is *Owner) error {
	switch {
	case o.Group != is.Group:
		return ErrOwner.WithField("group").With("folder", o.Group).With("config", is.Group)
	case o.Self != is.Self:
		return ErrOwner.WithField("selfId").With("folder", o.Self).With("config", is.Self)
	case !slices.Equal(o.Members, is.Members):
		return ErrOwner.WithField("peers").With("folder", o.Members).With("config", is.Members)
	}
	return nil
}
