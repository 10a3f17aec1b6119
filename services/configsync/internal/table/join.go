package table

import "github.com/tandemlog/tandem/services/configsync/internal/table/entry"

// Join is what becomes of a node's table when it hears that of a peer before it leads. Both ways give the same content. Of
// topics and groups the newer table counts, and an empty one never; offsets are joined. A table that changed by more than
// becoming the peer's gets a new version, of state and nowMS.
func Join(own, peer *Table, state, nowMS int64) (*Table, Report, error) {
	if own.kind != peer.kind {
		return own, Report{}, ErrKind.With("kind", own.kind).With("got", peer.kind)
	}
	if own.kind.Offsets() {
		return joinPeer(own, peer, state, nowMS)
	}
	order := peer.version.Compare(own.version)
	if order == 0 && own.Sum() == peer.Sum() {
		return own, Report{}, nil
	}
	if mayReplace(peer, own) != nil {
		order = 1 // the own one is empty and does not say why
	} else if mayReplace(own, peer) != nil {
		order = -1
	}
	if order > 0 || order == 0 && peer.Sum() > own.Sum() {
		next := *peer
		return &next, withOther(compare(own, peer), order == 0), nil
	}
	return own, Report{OtherContent: order == 0}, nil
}

func withOther(r Report, other bool) Report {
	r.OtherContent = other
	return r
}

func joinPeer(own, peer *Table, state, nowMS int64) (*Table, Report, error) {
	newest := own.version
	if peer.version.Compare(newest) > 0 {
		newest = peer.version
	}
	next, r, err := joinOffsets(own, peer, newest)
	if err != nil {
		return own, Report{}, err
	}
	switch sum := next.Sum(); {
	case sum == own.Sum() && newest == own.version:
		return own, r, nil
	case sum == peer.Sum() && newest == peer.version:
		r.Changed = true
		return next, r, nil
	}
	r.Changed = true
	e := next.Edit(state, nowMS)
	e.Touch()
	next = e.table()
	next.floor = next.version.Counter // the content before had no version of its own
	return next, r, nil
}

// JavaOptions are for who follows a Java master.
type JavaOptions struct {
	// TakeLower resets own offsets that are above the master's, with a new epoch.
	TakeLower bool
}

// FollowJava is what becomes of a slave's table when its Java master's comes. Versions of a Java master are equal or
// different, never greater; ours goes on counting. Topics and groups are the master's; an offset of its that is lower
// than ours is reported, and taken only when told; one that it has not is kept.
func FollowJava(own, java *Table, o JavaOptions, nowMS int64) (*Table, Report, error) {
	if own.kind != java.kind {
		return own, Report{}, ErrKind.With("kind", own.kind).With("got", java.kind)
	}
	e := own.Edit(own.version.State, nowMS)
	var r Report
	var err error
	if own.kind.Offsets() {
		err = e.javaOffsets(java, o, &r)
	} else {
		err = e.javaConfigs(java, &r)
	}
	if err != nil {
		return own, Report{}, err
	}
	e.setUnknown(java.unknown)
	next := e.table()
	r.Changed = next != own
	if next.upstream != java.version {
		t := *next
		t.upstream = java.version
		next = &t
	}
	return next, r, nil
}

func (e *Edit) javaConfigs(java *Table, r *Report) error {
	if java.Len() == 0 && e.base.Len() > 0 {
		return ErrEmpty.With("kind", e.base.kind).With("entries", e.base.Len()).
			WithRemedy("a broker never has an empty table: see what the master answers")
	}
	if e.base.upstream == java.version && !java.version.IsZero() {
		return nil
	}
	for own := range e.base.Ascend("") {
		if _, ok := java.Get(own.Key); !ok {
			e.Delete(own.Key)
			r.Removed++
		}
	}
	for in := range java.Ascend("") {
		if err := e.take(in, r); err != nil {
			return err
		}
	}
	return nil
}

func (e *Edit) javaOffsets(java *Table, o JavaOptions, r *Report) error {
	epoch, err := e.NewEpoch()
	if o.TakeLower && err != nil {
		return err
	}
	for in := range java.Ascend("") {
		old, had := e.Get(in.Key)
		switch v := in.Value.(type) {
		case *entry.Offsets:
			own, _ := old.Value.(*entry.Offsets)
			queues := make([]entry.QueueOffset, 0, v.Len())
			for q := range v.All() {
				have, exists := own.Get(q.Queue)
				if next, ok := r.java(e.base.kind, in.Key, have, q, exists, o, epoch); ok {
					queues = append(queues, next)
				}
			}
			if len(queues) > 0 || !had {
				e.join(in.Key, queues...)
				r.count(had)
			}
		case *entry.Delay:
			var have entry.QueueOffset
			if d, ok := old.Value.(*entry.Delay); ok {
				have = entry.QueueOffset{Epoch: d.Epoch, Offset: d.Offset}
			}
			if next, ok := r.java(e.base.kind, in.Key, have, entry.QueueOffset{Offset: v.Offset}, had, o, epoch); ok {
				e.set(in.Key, &entry.Delay{Offset: next.Offset, Epoch: next.Epoch})
				r.count(had)
			}
		}
	}
	return nil
}

func (r *Report) count(had bool) {
	if had {
		r.Updated++
	} else {
		r.Added++
	}
}

// java returns what becomes of one offset; false: it stays.
func (r *Report) java(kind entry.Kind, key string, have, in entry.QueueOffset, exists bool, o JavaOptions, epoch uint32) (entry.QueueOffset, bool) {
	switch {
	case !exists:
		return in, true
	case in.Offset == have.Offset:
		return have, false
	case in.Offset > have.Offset:
		in.Epoch = have.Epoch
		return in, true
	}
	r.LowerCount++
	if len(r.Lower) < maxLower {
		r.Lower = append(r.Lower, offsetDifference(kind, key, have, in))
	}
	if !o.TakeLower {
		r.Ahead++
	}
	in.Epoch = epoch
	return in, o.TakeLower
}
