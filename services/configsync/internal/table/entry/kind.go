package entry

import "fmt"

// Kind is one of the four tables.
type Kind uint8

// Kinds, in the order in which RocketMQ's slave asks for them. The numbers stand in files and messages.
const (
	Topics Kind = iota + 1
	ConsumerOffsets
	DelayOffsets
	Groups
)

// Kinds returns all of them.
func Kinds() []Kind { return []Kind{Topics, ConsumerOffsets, DelayOffsets, Groups} }

type kindNames struct{ name, file string }

func (k Kind) names() kindNames {
	switch k {
	case Topics:
		return kindNames{"topics", "topics.json"}
	case ConsumerOffsets:
		return kindNames{"consumer_offsets", "consumerOffset.json"}
	case DelayOffsets:
		return kindNames{"delay_offsets", "delayOffset.json"}
	case Groups:
		return kindNames{"groups", "subscriptionGroup.json"}
	}
	return kindNames{fmt.Sprintf("kind %d", uint8(k)), ""}
}

// String returns the kind in one word.
func (k Kind) String() string { return k.names().name }

// File returns the name of RocketMQ's file.
func (k Kind) File() string { return k.names().file }

// Valid reports whether k is one of the four.
func (k Kind) Valid() bool { return k >= Topics && k <= Groups }

// Offsets reports whether the entries are offsets, which only grow unless they are reset.
func (k Kind) Offsets() bool { return k == ConsumerOffsets || k == DelayOffsets }

// Version is RocketMQ's DataVersion.
type Version struct {
	State     int64 // stateVersion: the epoch of the master that made it
	Timestamp int64 // ms
	Counter   int64 // one more with each change
}

// Compare orders by state, counter, timestamp, as DataVersion#compare does.
func (v Version) Compare(o Version) int {
	for _, p := range [][2]int64{{v.State, o.State}, {v.Counter, o.Counter}, {v.Timestamp, o.Timestamp}} {
		if p[0] != p[1] {
			if p[0] < p[1] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// Equal reports whether all three are equal.
func (v Version) Equal(o Version) bool { return v == o }

// IsZero reports whether v is the version of a table that never changed.
func (v Version) IsZero() bool { return v == Version{} }

// Next is DataVersion#nextVersion; the state never goes back.
func (v Version) Next(state, nowMS int64) Version {
	return Version{State: max(state, v.State), Timestamp: nowMS, Counter: v.Counter + 1}
}

// String returns state/counter@timestamp.
func (v Version) String() string { return fmt.Sprintf("%d/%d@%d", v.State, v.Counter, v.Timestamp) }
