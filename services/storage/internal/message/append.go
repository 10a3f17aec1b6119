package message

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Draft is a message before it has a place in the log.
type Draft struct {
	Topic                     string
	QueueID                   int32
	Flag                      int32
	SysFlag                   int32 // the two host bits are set by Append from the hosts themselves
	BornTimestamp             int64 // ms since 1970
	BornHost, StoreHost       netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body                      []byte
	Properties                []byte // encoded, see AppendProperty; a `__CRC32#` at their end is dropped
}

// Append encodes d behind dst, with zero for what only the log can know: queue offset, physical offset and store
// timestamp. Stamp fills these in. With crc the record ends in the `__CRC32#` property, which Stamp completes. Topics
// longer than 127 bytes make a V2 record. It allocates only when dst is too small. d must have passed Limits.Validate.
func Append(dst []byte, d *Draft, crc bool) []byte {
	props := trimCRC(d.Properties)
	propsLen := propertiesSize(props, crc)
	sysFlag, v2, magic := hostFlags(d), len(d.Topic) > MaxTopic, MagicV1
	size := fixedSize + hostExtra(sysFlag) + len(d.Body) + len(d.Topic) + propsLen
	if v2 {
		size++
		magic = MagicV2
	}
	start := len(dst)
	dst = slices.Grow(dst, size)[:start+size]
	rec := dst[start:]
	// Field by field, as View.put does for a whole view: that would be another 300 bytes to fill first.
	binary.BigEndian.PutUint32(rec, uint32(size))
	binary.BigEndian.PutUint32(rec[posMagic:], magic)
	binary.BigEndian.PutUint32(rec[posBodyCRC:], BodyCRC(d.Body))
	binary.BigEndian.PutUint32(rec[posQueueID:], uint32(d.QueueID))
	binary.BigEndian.PutUint32(rec[posFlag:], uint32(d.Flag))
	clear(rec[posQueueOffset:posSysFlag])
	binary.BigEndian.PutUint32(rec[posSysFlag:], uint32(sysFlag))
	binary.BigEndian.PutUint64(rec[posBornTimestamp:], uint64(d.BornTimestamp))
	p := putHost(rec, posBornHost, d.BornHost.Addr(), int32(d.BornHost.Port()), sysFlag&SysFlagBornHostV6 != 0)
	clear(rec[p : p+8])
	p = putHost(rec, p+8, d.StoreHost.Addr(), int32(d.StoreHost.Port()), sysFlag&SysFlagStoreHostV6 != 0)
	binary.BigEndian.PutUint32(rec[p:], uint32(d.ReconsumeTimes))
	binary.BigEndian.PutUint64(rec[p+4:], uint64(d.PreparedTransactionOffset))
	binary.BigEndian.PutUint32(rec[p+12:], uint32(len(d.Body)))
	p += 16
	p += copy(rec[p:], d.Body)
	p = putTopicLength(rec, p, len(d.Topic), v2)
	p += copy(rec[p:], d.Topic)
	binary.BigEndian.PutUint16(rec[p:], uint16(propsLen))
	p += 2
	copy(rec[p:], props)
	if crc {
		if len(props) > 0 {
			rec[size-CRCSize-1] = pairSeparator // props may lack the last one
		}
		reserveCRC(rec)
	}
	return dst
}

// EncodedSize returns how many bytes Append adds for d.
func EncodedSize(d *Draft, crc bool) int {
	n := fixedSize + hostExtra(hostFlags(d)) + len(d.Body) + len(d.Topic) + propertiesSize(trimCRC(d.Properties), crc)
	if len(d.Topic) > MaxTopic {
		n++
	}
	return n
}

// propertiesSize is what props take in a record, with the `__CRC32#` property and the separator that it may need.
func propertiesSize(props []byte, crc bool) int {
	n := len(props)
	if crc {
		n += CRCSize
		if len(props) > 0 && props[len(props)-1] != pairSeparator {
			n++
		}
	}
	return n
}

// Stamp gives the record its place: queue offset, physical offset (bytes) and store timestamp (ms since 1970), and
// completes the `__CRC32#` property if the record ends in one. rec is exactly one record as Append made it; stamping it
// again is allowed. The cost does not grow with the body; nothing is allocated: it runs under the log's append lock.
func Stamp(rec []byte, queueOffset, physicalOffset, storeTimestamp int64) {
	end := posBornHost + 16 // of the store timestamp
	if binary.BigEndian.Uint32(rec[posSysFlag:])&uint32(SysFlagBornHostV6) != 0 {
		end += v6Extra
	}
	sealed := endsInCRC(rec)
	small := len(rec) <= directCRC
	var before uint32
	if sealed && !small {
		before = rawCRC(rec[posQueueOffset:end])
	}
	binary.BigEndian.PutUint64(rec[posQueueOffset:], uint64(queueOffset))
	binary.BigEndian.PutUint64(rec[posPhysicalOffset:], uint64(physicalOffset))
	binary.BigEndian.PutUint64(rec[end-8:], uint64(storeTimestamp))
	switch {
	case !sealed:
	case small:
		putCRCDigits(rec, recordCRC(rec))
	default:
		delta := before ^ rawCRC(rec[posQueueOffset:end])
		putCRCDigits(rec, storedCRC(rec)^shiftCRC(delta, len(rec)-CRCSize-end)&crcMask)
	}
}

// AppendBlank appends the 8-byte header of a blank record that covers size bytes to the end of its file. The bytes
// behind the header belong to the record but are not written.
func AppendBlank(dst []byte, size int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	return binary.BigEndian.AppendUint32(dst, MagicBlank)
}

func hostFlags(d *Draft) int32 {
	f := d.SysFlag &^ sysFlagHostV6
	if isV6(d.BornHost) {
		f |= SysFlagBornHostV6
	}
	if isV6(d.StoreHost) {
		f |= SysFlagStoreHostV6
	}
	return f
}

func isV6(a netip.AddrPort) bool { return a.Addr().Is6() && !a.Addr().Is4In6() }
