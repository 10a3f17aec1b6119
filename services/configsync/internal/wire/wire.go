package wire

import (
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Kind is the wire form of a kind; the numbers are the same.
func Kind(k entry.Kind) configsyncv1.Kind { return configsyncv1.Kind(k) }

// KindOf is the way back; field names the field of the request.
func KindOf(field string, k configsyncv1.Kind) (entry.Kind, error) {
	if k < configsyncv1.Kind_KIND_TOPICS || k > configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS {
		return 0, errdefs.Invalid(field, "%d is no kind of table", k).WithRemedy("use 1 to 4")
	}
	return entry.Kind(k), nil
}

// KindsOf returns the kinds of a request in their order, all of them where there are none.
func KindsOf(field string, ks []configsyncv1.Kind) ([]entry.Kind, error) {
	if len(ks) == 0 {
		return entry.Kinds(), nil
	}
	asked := map[entry.Kind]bool{}
	for _, k := range ks {
		kind, err := KindOf(field, k)
		if err != nil {
			return nil, err
		}
		asked[kind] = true
	}
	var out []entry.Kind
	for _, k := range entry.Kinds() {
		if asked[k] {
			out = append(out, k)
		}
	}
	return out, nil
}

// Version is the wire form of a version.
func Version(v entry.Version) *configsyncv1.DataVersion {
	return &configsyncv1.DataVersion{StateVersion: v.State, Timestamp: v.Timestamp, Counter: v.Counter}
}

// VersionOf is the way back; nil is the version of a table that never changed.
func VersionOf(v *configsyncv1.DataVersion) entry.Version {
	return entry.Version{State: v.GetStateVersion(), Timestamp: v.GetTimestamp(), Counter: v.GetCounter()}
}

// TableVersion says where t stands.
func TableVersion(t *table.Table) *configsyncv1.TableVersion {
	return &configsyncv1.TableVersion{
		Kind: Kind(t.Kind()), DataVersion: Version(t.Version()), Sum: t.Sum(), Entries: int64(t.Len()),
	}
}
