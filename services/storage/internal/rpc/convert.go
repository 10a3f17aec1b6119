package rpc

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/store"
)

// caller is what all messages of a call have in common.
type caller struct {
	host        netip.AddrPort // the zero value when it has none (in-process connections)
	traceParent string         // of a sampled trace, else empty
}

func callerOf(ctx context.Context) caller {
	c := caller{host: bornHost(ctx)}
	if trace.SpanContextFromContext(ctx).IsSampled() {
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		c.traceParent = carrier[message.PropertyTraceParent]
	}
	return c
}

// messageOf checks what only the wire shape can get wrong and encodes the properties; field names the message in the
// request. A sampled trace goes along as the property traceparent, unless the producer has set one.
func messageOf(from caller, field string, m *storagev1.Message) (store.Message, error) {
	if m == nil {
		return store.Message{}, errdefs.Invalid(field, "is missing")
	}
	out := store.Message{
		Topic: m.GetTopic(), QueueID: -1, Flag: m.GetFlag(), SysFlag: m.GetSysFlag(),
		BornTimestamp: m.GetBornTimestamp(), BornHost: from.host, Body: m.GetBody(),
	}
	if m.QueueId != nil {
		if m.GetQueueId() < 0 {
			return out, errdefs.Invalid(field+".queue_id", "%d is negative", m.GetQueueId())
		}
		out.QueueID = m.GetQueueId()
	}
	if out.BornTimestamp < 0 {
		return out, errdefs.Invalid(field+".born_timestamp", "%d is negative", out.BornTimestamp)
	}
	props, err := propertiesOf(from, field, m)
	out.Properties = props
	return out, err
}

func propertiesOf(from caller, field string, m *storagev1.Message) ([]byte, error) {
	props := m.GetProperties()
	var b []byte
	var names []string
	if len(props) > 0 { // most messages have none
		names = slices.Sorted(maps.Keys(props))
	}
	for _, name := range names {
		value := props[name]
		if name == "" || strings.ContainsAny(name, "\x01\x02") || strings.ContainsAny(value, "\x01\x02") {
			return nil, errdefs.Invalid(fmt.Sprintf("%s.properties[%q]", field, name), "names are not empty, and neither names nor values contain the bytes 01 and 02")
		}
		if name == message.PropertyCRC32 {
			continue // the store's own
		}
		b = message.AppendProperty(b, name, value)
	}
	b, err := appendNamed(b, field, "tag", message.PropertyTags, m.GetTag(), props)
	if err != nil {
		return nil, err
	}
	for _, k := range m.GetKeys() {
		if k == "" || strings.Contains(k, " ") {
			return nil, errdefs.Invalid(field+".keys", "%q is empty or contains a space, which separates keys", k)
		}
	}
	if b, err = appendNamed(b, field, "keys", message.PropertyKeys, strings.Join(m.GetKeys(), " "), props); err != nil {
		return nil, err
	}
	if _, set := props[message.PropertyTraceParent]; !set && from.traceParent != "" {
		b = message.AppendProperty(b, message.PropertyTraceParent, from.traceParent)
	}
	return b, nil
}

// appendNamed appends a property that has a field of its own in the message.
func appendNamed(b []byte, of, field, name, value string, props map[string]string) ([]byte, error) {
	if value == "" {
		return b, nil
	}
	if _, twice := props[name]; twice {
		return nil, errdefs.Invalid(of+"."+field, "is also set as property %s", name)
	}
	if strings.ContainsAny(value, "\x01\x02") {
		return nil, errdefs.Invalid(of+"."+field, "contains the byte 01 or 02")
	}
	return message.AppendProperty(b, name, value), nil
}

func resultOf(r *store.Result) *storagev1.PutResult {
	out := new(storagev1.PutResult)
	setResult(out, r)
	return out
}

func setResult(out *storagev1.PutResult, r *store.Result) {
	out.Status, out.Offset, out.Size = storagev1.PutStatus(r.Status), r.Offset, r.Size
	out.QueueId, out.QueueOffset = r.QueueID, r.QueueOffset
	out.MessageId, out.StoreTimestamp = r.MessageID, r.StoreTimestamp
	out.AckedSlaves, out.FlushedSlaves = int32(r.Acked), int32(r.Flushed) //nolint:gosec // a handful of slaves
	if r.Offset >= 0 {
		out.OffsetMessageId = message.OffsetMessageID(r.StoreHost, r.Offset)
	}
	if r.Err != nil {
		out.Reason = r.Err.Error()
	}
}

func storedOf(rs []store.Record) []*storagev1.StoredMessage {
	out := make([]*storagev1.StoredMessage, len(rs))
	for i := range rs {
		v := &rs[i].View
		m := &storagev1.Message{
			Topic: validUTF8(v.Topic), QueueId: &v.QueueID, Body: v.Body, Flag: v.Flag,
			BornTimestamp: v.BornTimestamp, SysFlag: v.SysFlag, Properties: map[string]string{},
		}
		message.EachProperty(v.Properties, func(name, value []byte) bool {
			if string(name) == message.PropertyCRC32 {
				return true // the record's own
			}
			m.Properties[validUTF8(name)] = validUTF8(value)
			return true
		})
		m.Tag = m.Properties[message.PropertyTags]
		m.Keys = strings.Fields(m.Properties[message.PropertyKeys])
		out[i] = &storagev1.StoredMessage{
			Message: m, Offset: rs[i].Offset, Size: v.Size, QueueOffset: v.QueueOffset, StoreTimestamp: v.StoreTimestamp,
			BornHost: v.BornHost.String(), StoreHost: v.StoreHost.String(), ReconsumeTimes: v.ReconsumeTimes,
			PreparedTransactionOffset: v.PreparedTransactionOffset,
			OffsetMessageId:           message.OffsetMessageID(v.StoreHost, rs[i].Offset),
		}
	}
	return out
}

// queueToken is the page token of a list that ended with q.
func queueToken(q store.QueueInfo) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(int(q.ID)) + " " + q.Topic))
}

func parseQueueToken(token string) (store.QueueInfo, error) {
	if token == "" {
		return store.QueueInfo{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	id, topic, ok := strings.Cut(string(raw), " ")
	n, nerr := strconv.ParseInt(id, 10, 32)
	if err != nil || nerr != nil || !ok || topic == "" {
		return store.QueueInfo{}, errdefs.Invalid("page_token", "is not a next_page_token of this list")
	}
	return store.QueueInfo{Topic: topic, ID: int32(n)}, nil
}
