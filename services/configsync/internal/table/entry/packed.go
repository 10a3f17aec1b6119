package entry

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
	"github.com/tandemlog/tandem/services/configsync/internal/table/packed"
)

// AppendPacked appends a key and its value in the form of chunks, which is the same for all that are equal and for no others.
func AppendPacked(b []byte, key string, v Value) []byte {
	return v.appendPacked(packed.AppendText(b, key))
}

// Absent says which fields the text that a config came from had not, a bit for each in the order of their names, as far as they
// have their defaults: they need not be written. It is no part of the meaning.
func Absent(v Value) uint32 {
	switch v := v.(type) {
	case *TopicConfig:
		return absent(topicProperties, v, v.missing)
	case *GroupConfig:
		return absent(groupProperties, v, v.missing)
	}
	return 0
}

func absent[T any](props []property[T], v *T, missing uint32) uint32 {
	var bits uint32
	for i := 0; i < len(props) && missing>>i != 0; i++ {
		if missing&(1<<i) != 0 && props[i].plain(v) {
			bits |= 1 << i
		}
	}
	return bits
}

// Unpacker reads what AppendPacked wrote. The zero value is ready.
type Unpacker struct {
	topics []TopicConfig // room for the next ones
}

// topicBlock is how many topics are allocated together where all or none of them are kept.
const topicBlock = 16

// Read reads a key and its value, which has the fields that absent says not; the reader has the error. What it takes comes from
// AppendPacked byte for byte the same. With shared, topics lie beside each other as texts do.
func (u *Unpacker) Read(r *packed.Reader, kind Kind, absent uint32, shared bool) (string, Value) {
	key := r.Text()
	var v Value
	switch kind {
	case Topics:
		v = u.readTopic(r, key, absent, shared)
	case Groups:
		v = readGroup(r, key, absent)
	case ConsumerOffsets:
		v = readOffsets(r)
	default:
		v = &Delay{Epoch: uint32(r.Uvarint(math.MaxUint32)), Offset: readOffset(r)}
	}
	if absent != 0 && Absent(v) != absent {
		r.Failf("%.80q lacks fields that it needs: bits %#x", key, absent)
	}
	return key, v
}

// Flags of a topic and of a group.
const (
	topicOrder    = 1
	topicMultiTag = 2

	groupConsume   = 1
	groupFromMin   = 2
	groupBroadcast = 4
	groupOrderly   = 8
	groupNotify    = 16
	groupPolicy    = 32 // a retry policy follows; else it is the default
)

func flag(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

func (t *TopicConfig) appendPacked(b []byte) []byte {
	b = append(b, flag(t.Order, topicOrder)|flag(t.FilterType == MultiTag, topicMultiTag))
	b = binary.AppendVarint(b, int64(t.ReadQueues))
	b = binary.AppendVarint(b, int64(t.WriteQueues))
	b = binary.AppendVarint(b, int64(t.Perm))
	b = binary.AppendVarint(b, int64(t.SysFlag))
	b = appendAttributes(b, t.Attributes)
	return AppendFields(b, t.Unknown)
}

func (u *Unpacker) readTopic(r *packed.Reader, key string, absent uint32, shared bool) *TopicConfig {
	var t *TopicConfig
	if shared {
		if len(u.topics) == 0 {
			u.topics = make([]TopicConfig, topicBlock)
		}
		t, u.topics = &u.topics[0], u.topics[1:]
	} else {
		t = new(TopicConfig)
	}
	t.Name, t.FilterType, t.missing = key, SingleTag, absent
	flags := r.Byte()
	if flags > topicOrder|topicMultiTag {
		r.Fail(fastjson.ErrShape.WithMsg("flags %#x of topic %.80q", flags, key))
	}
	t.Order = flags&topicOrder != 0
	if flags&topicMultiTag != 0 {
		t.FilterType = MultiTag
	}
	t.ReadQueues, t.WriteQueues, t.Perm, t.SysFlag = r.Int32(), r.Int32(), Perm(r.Int32()), r.Int32()
	t.Attributes = readAttributes(r)
	t.Unknown = ReadFields(r)
	refuseKnown(r, topicProperties, t.Unknown)
	return t
}

func (g *GroupConfig) appendPacked(b []byte) []byte {
	b = append(b, flag(g.ConsumeEnable, groupConsume)|flag(g.ConsumeFromMinEnable, groupFromMin)|flag(g.ConsumeBroadcastEnable, groupBroadcast)|
		flag(g.ConsumeMessageOrderly, groupOrderly)|flag(g.NotifyConsumerIDsChanged, groupNotify)|flag(g.RetryPolicy != DefaultRetryPolicy, groupPolicy))
	b = binary.AppendVarint(b, int64(g.RetryQueues))
	b = binary.AppendVarint(b, int64(g.RetryMax))
	b = binary.AppendVarint(b, g.BrokerID)
	b = binary.AppendVarint(b, g.SlowBrokerID)
	b = binary.AppendVarint(b, int64(g.SysFlag))
	b = binary.AppendVarint(b, int64(g.ConsumeTimeoutMinutes))
	if g.RetryPolicy != DefaultRetryPolicy {
		b = packed.AppendText(b, g.RetryPolicy)
	}
	b = appendAttributes(b, g.Attributes)
	return AppendFields(b, g.Unknown)
}

func readGroup(r *packed.Reader, key string, absent uint32) *GroupConfig {
	flags := r.Byte()
	if flags >= groupPolicy<<1 {
		r.Fail(fastjson.ErrShape.WithMsg("flags %#x of group %.80q", flags, key))
	}
	g := &GroupConfig{
		Name: key, ConsumeEnable: flags&groupConsume != 0, ConsumeFromMinEnable: flags&groupFromMin != 0,
		ConsumeBroadcastEnable: flags&groupBroadcast != 0, ConsumeMessageOrderly: flags&groupOrderly != 0,
		NotifyConsumerIDsChanged: flags&groupNotify != 0, RetryPolicy: DefaultRetryPolicy, missing: absent,
	}
	g.RetryQueues, g.RetryMax, g.BrokerID, g.SlowBrokerID = r.Int32(), r.Int32(), r.Varint(), r.Varint()
	g.SysFlag, g.ConsumeTimeoutMinutes = r.Int32(), r.Int32()
	if flags&groupPolicy != 0 {
		if g.RetryPolicy = r.Text(); g.RetryPolicy == DefaultRetryPolicy || !fastjson.Compact(g.RetryPolicy) {
			r.Failf("a retry policy that is the default, or not compact JSON: %.80q", g.RetryPolicy)
		}
	}
	g.Attributes = readAttributes(r)
	g.Unknown = ReadFields(r)
	refuseKnown(r, groupProperties, g.Unknown)
	return g
}

func refuseKnown[T any](r *packed.Reader, props []property[T], fields []Field) {
	for _, f := range fields {
		if known(props, f.Name) {
			r.Failf("field %.80q among those that nobody knows", f.Name)
		}
	}
}

func appendAttributes(b []byte, m map[string]string) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	if len(m) == 0 { // most have none, and sorting nothing allocates
		return b
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = packed.AppendText(packed.AppendText(b, k), m[k])
	}
	return b
}

func readAttributes(r *packed.Reader) map[string]string {
	n := r.Count()
	if n == 0 {
		return nil
	}
	m, last := map[string]string{}, ""
	for i := range n {
		k := r.Text()
		if i > 0 && k <= last {
			r.Failf("attribute %.80q is not in its place", k)
		}
		if r.Err() != nil {
			return nil
		}
		m[k], last = r.Text(), k
	}
	return m
}

// AppendFields appends fields that nobody knows, which are in the order of their names.
func AppendFields(b []byte, fields []Field) []byte {
	b = binary.AppendUvarint(b, uint64(len(fields)))
	for _, f := range fields {
		b = packed.AppendText(packed.AppendText(b, f.Name), f.Raw)
	}
	return b
}

// ReadFields reads them.
func ReadFields(r *packed.Reader) []Field {
	var out []Field
	for n := r.Count(); n > 0 && r.Err() == nil; n-- {
		f := Field{Name: r.Text(), Raw: r.Text()}
		if len(out) > 0 && f.Name <= out[len(out)-1].Name || !fastjson.Compact(f.Raw) {
			r.Failf("field %.80q is not in its place, or not compact JSON", f.Name)
		}
		out = append(out, f)
	}
	return out
}

func (o *Offsets) appendPacked(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(o.queues)))
	for _, q := range o.queues {
		b = binary.AppendUvarint(b, uint64(q.Queue))
		b = q.appendPacked(b)
	}
	return b
}

// appendPacked appends it without its queue.
func (q QueueOffset) appendPacked(b []byte) []byte {
	return binary.AppendVarint(binary.AppendUvarint(b, uint64(q.Epoch)), q.Offset)
}

func readOffsets(r *packed.Reader) *Offsets {
	n := r.Count()
	if n == 0 {
		return &Offsets{}
	}
	o := &Offsets{queues: make([]QueueOffset, 0, min(n, r.Left()/3))} // each has three bytes at least
	last := int32(-1)
	for ; n > 0 && r.Err() == nil; n-- {
		q := QueueOffset{Queue: int32(r.Uvarint(math.MaxInt32)), Epoch: uint32(r.Uvarint(math.MaxUint32)), Offset: readOffset(r)}
		if q.Queue <= last {
			r.Failf("queue %d is not in its place", q.Queue)
		}
		last = q.Queue
		o.queues = append(o.queues, q)
	}
	return o
}

func readOffset(r *packed.Reader) int64 {
	n := r.Varint()
	if n < NoOffset {
		r.Failf("offset %d", n)
	}
	return n
}

func (d *Delay) appendPacked(b []byte) []byte { return d.queue().appendPacked(b) }
