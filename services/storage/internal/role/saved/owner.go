package saved

import (
	"errors"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// ErrOtherBroker says that a folder is not that of the broker in the configuration. Metadata: the names of both.
var ErrOtherBroker = errdefs.New(errdefs.FailedPrecondition, "OTHER_BROKER", "the folder is that of another broker").
	WithRemedy("where storePathRootDir, brokerClusterName or brokerName is wrong, set it right; where the broker was renamed, run `storage adopt` with this configuration once, on each of its nodes")

// Broker names a broker, whose nodes have one log. The zero value is nobody.
type Broker struct{ Cluster, Name string }

func (b Broker) String() string { return b.Name + " of " + b.Cluster }

// owner returns whose the folder is: nobody's where it is new, where RocketMQ wrote it, and where the lineage is lost. The backup
// does not tell, as it may be older than an Adopt.
func (f *File) owner() Broker {
	l, _, backup, err := f.read()
	if err != nil || backup {
		return Broker{}
	}
	return Broker{l.Cluster, l.BrokerName}
}

// CheckOwner refuses a folder that another broker has used last, and changes nothing.
func (f *File) CheckOwner(b Broker) error {
	if was := f.owner(); was != (Broker{}) && was != b {
		return ErrOtherBroker.With("cluster", was.Cluster).With("broker", was.Name).With("configured_cluster", b.Cluster).With("configured_broker", b.Name)
	}
	return nil
}

// Adopt makes the folder root b's and returns whose it was. What is nobody's stays so. It is refused while a process uses the
// folder.
func Adopt(fsys vfs.FS, root string, b Broker) (was Broker, err error) {
	if _, err := fsys.Stat(root); err != nil {
		return was, err //nolint:wrapcheck // a PathError
	}
	lock, err := durable.Lock(fsys, filepath.Join(root, "lock"))
	if err != nil {
		return was, err //nolint:wrapcheck // says what it did
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	f := New(fsys, root)
	if was = f.owner(); was == (Broker{}) || was == b {
		return was, nil
	}
	next := f.last.Clone()
	next.Cluster, next.BrokerName = b.Cluster, b.Name
	return was, f.write(next)
}
