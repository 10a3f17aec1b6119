package message

import (
	"encoding/binary"
	"net/netip"
)

// Sizes of a record's parts, bytes.
const (
	BlankSize  = 8  // header of a blank record; a file keeps at least this much free for it
	fixedSize  = 91 // V1, IPv4 hosts, empty body, topic and properties
	v6Extra    = 12 // an IPv6 host beyond an IPv4 one
	headerSize = 8  // total size and magic

	posMagic          = 4
	posBodyCRC        = 8
	posQueueID        = 12
	posFlag           = 16
	posQueueOffset    = 20
	posPhysicalOffset = 28
	posSysFlag        = 36
	posBornTimestamp  = 40
	posBornHost       = 48
)

// View is a decoded record. Body, Topic and Properties alias the bytes it was decoded from: they are valid as long as
// those are, and must not be changed.
type View struct {
	Size                      int32  // whole record, bytes
	V2                        bool   // magic V2
	BodyCRC                   uint32 // CRC-32 IEEE of the body, lower 31 bits
	QueueID                   int32
	Flag                      int32 // the user's, not interpreted
	QueueOffset               int64 // ordinal in the queue; 0 for prepared and rollback records
	PhysicalOffset            int64 // log offset of the record's first byte
	SysFlag                   int32
	BornTimestamp             int64 // ms since 1970, the producer's clock
	BornHost                  netip.AddrPort
	BornPort                  int32 // as on disk; BornHost has port 0 where it is no port
	StoreTimestamp            int64 // ms since 1970, the store's clock
	StoreHost                 netip.AddrPort
	StorePort                 int32
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body, Topic, Properties   []byte
}

// Decode reads the record that rec begins with; rec may go on behind it. Every length is checked against rec before it
// is used, and the sum of all against the record's total size. Contents are not judged: Check does that. A failure is a
// *CorruptError whose offset is relative to rec; v is then undefined. Decode allocates nothing unless it fails.
func Decode(rec []byte, v *View) error {
	if c := v.decode(rec); c != nil {
		return c
	}
	return nil
}

func (v *View) decode(rec []byte) *CorruptError {
	if len(rec) < headerSize {
		return short(fieldTotalSize, headerSize, len(rec))
	}
	size := int32(binary.BigEndian.Uint32(rec))
	magic := binary.BigEndian.Uint32(rec[posMagic:])
	if magic != MagicV1 && magic != MagicV2 {
		return &CorruptError{Field: fieldMagic, Want: int64(MagicV1), Got: int64(magic)}
	}
	if size < fixedSize {
		return &CorruptError{Field: fieldTotalSize, Want: fixedSize, Got: int64(size)}
	}
	if int(size) > len(rec) {
		return short(fieldTotalSize, int(size), len(rec))
	}
	v.Size, v.V2 = size, magic == MagicV2
	return v.decodeHead(rec[:size:size])
}

// decodeHead reads the fields behind size and magic; rec is exactly the record.
func (v *View) decodeHead(rec []byte) *CorruptError {
	v.BodyCRC = binary.BigEndian.Uint32(rec[posBodyCRC:])
	v.QueueID = int32(binary.BigEndian.Uint32(rec[posQueueID:]))
	v.Flag = int32(binary.BigEndian.Uint32(rec[posFlag:]))
	v.QueueOffset = int64(binary.BigEndian.Uint64(rec[posQueueOffset:]))
	v.PhysicalOffset = int64(binary.BigEndian.Uint64(rec[posPhysicalOffset:]))
	v.SysFlag = int32(binary.BigEndian.Uint32(rec[posSysFlag:]))
	v.BornTimestamp = int64(binary.BigEndian.Uint64(rec[posBornTimestamp:]))
	if need := fixedSize + hostExtra(v.SysFlag) + v.topicExtra(); len(rec) < need {
		return &CorruptError{Field: fieldTotalSize, Want: int64(need), Got: int64(len(rec))}
	}
	var p int
	v.BornHost, v.BornPort, p = host(rec, posBornHost, v.SysFlag&SysFlagBornHostV6 != 0)
	v.StoreTimestamp = int64(binary.BigEndian.Uint64(rec[p:]))
	v.StoreHost, v.StorePort, p = host(rec, p+8, v.SysFlag&SysFlagStoreHostV6 != 0)
	v.ReconsumeTimes = int32(binary.BigEndian.Uint32(rec[p:]))
	v.PreparedTransactionOffset = int64(binary.BigEndian.Uint64(rec[p+4:]))
	return v.decodeTail(rec, p+12)
}

// decodeTail reads the three variable parts, which begin at p.
func (v *View) decodeTail(rec []byte, p int) *CorruptError {
	after := 1 + v.topicExtra() + 2 // what must follow the body at least
	n := int(int32(binary.BigEndian.Uint32(rec[p:])))
	p += 4
	if n < 0 || n > len(rec)-p-after {
		return &CorruptError{Field: fieldBodyLength, Want: int64(len(rec) - p - after), Got: int64(n)}
	}
	v.Body = rec[p : p+n : p+n]
	p += n

	if v.V2 {
		n = int(int16(binary.BigEndian.Uint16(rec[p:])))
		p += 2
	} else {
		n = int(int8(rec[p]))
		p++
	}
	if n < 0 || n > len(rec)-p-2 {
		return &CorruptError{Field: fieldTopicLength, Want: int64(len(rec) - p - 2), Got: int64(n)}
	}
	v.Topic = rec[p : p+n : p+n]
	p += n

	n = int(int16(binary.BigEndian.Uint16(rec[p:])))
	p += 2
	if n != len(rec)-p {
		return &CorruptError{Field: fieldPropertiesLength, Want: int64(len(rec) - p), Got: int64(n)}
	}
	v.Properties = rec[p:]
	return nil
}

// Encode returns the bytes that v was decoded from: every field as it stands, the checksums too. The total size is
// computed from the parts.
func Encode(v *View) []byte {
	w := *v
	w.Size = int32(fixedSize + hostExtra(v.SysFlag) + v.topicExtra() + len(v.Body) + len(v.Topic) + len(v.Properties))
	rec := make([]byte, w.Size)
	p := w.put(rec, len(v.Body))
	p += copy(rec[p:], v.Body)
	p = putTopicLength(rec, p, len(v.Topic), v.V2)
	p += copy(rec[p:], v.Topic)
	binary.BigEndian.PutUint16(rec[p:], uint16(len(v.Properties)))
	copy(rec[p+2:], v.Properties)
	return rec
}

// put writes all fields up to the body's length and returns where the body begins.
func (v *View) put(rec []byte, body int) int {
	magic := MagicV1
	if v.V2 {
		magic = MagicV2
	}
	binary.BigEndian.PutUint32(rec, uint32(v.Size))
	binary.BigEndian.PutUint32(rec[posMagic:], magic)
	binary.BigEndian.PutUint32(rec[posBodyCRC:], v.BodyCRC)
	binary.BigEndian.PutUint32(rec[posQueueID:], uint32(v.QueueID))
	binary.BigEndian.PutUint32(rec[posFlag:], uint32(v.Flag))
	binary.BigEndian.PutUint64(rec[posQueueOffset:], uint64(v.QueueOffset))
	binary.BigEndian.PutUint64(rec[posPhysicalOffset:], uint64(v.PhysicalOffset))
	binary.BigEndian.PutUint32(rec[posSysFlag:], uint32(v.SysFlag))
	binary.BigEndian.PutUint64(rec[posBornTimestamp:], uint64(v.BornTimestamp))
	p := putHost(rec, posBornHost, v.BornHost.Addr(), v.BornPort, v.SysFlag&SysFlagBornHostV6 != 0)
	binary.BigEndian.PutUint64(rec[p:], uint64(v.StoreTimestamp))
	p = putHost(rec, p+8, v.StoreHost.Addr(), v.StorePort, v.SysFlag&SysFlagStoreHostV6 != 0)
	binary.BigEndian.PutUint32(rec[p:], uint32(v.ReconsumeTimes))
	binary.BigEndian.PutUint64(rec[p+4:], uint64(v.PreparedTransactionOffset))
	binary.BigEndian.PutUint32(rec[p+12:], uint32(body))
	return p + 16
}

func (v *View) topicExtra() int {
	if v.V2 {
		return 1
	}
	return 0
}

func putTopicLength(rec []byte, p, n int, v2 bool) int {
	if v2 {
		binary.BigEndian.PutUint16(rec[p:], uint16(n))
		return p + 2
	}
	rec[p] = byte(n)
	return p + 1
}

func hostExtra(sysFlag int32) int {
	n := 0
	if sysFlag&SysFlagBornHostV6 != 0 {
		n += v6Extra
	}
	if sysFlag&SysFlagStoreHostV6 != 0 {
		n += v6Extra
	}
	return n
}

// host reads an address and its port at p and returns where the next field begins.
func host(rec []byte, p int, v6 bool) (netip.AddrPort, int32, int) {
	var addr netip.Addr
	if v6 {
		addr = netip.AddrFrom16([16]byte(rec[p : p+16]))
		p += 16
	} else {
		addr = netip.AddrFrom4([4]byte(rec[p : p+4]))
		p += 4
	}
	raw := int32(binary.BigEndian.Uint32(rec[p:]))
	port := raw
	if port < 0 || port > 0xFFFF {
		port = 0
	}
	return netip.AddrPortFrom(addr, uint16(port)), raw, p + 4
}

// putHost writes an address in the width asked for; one that has no such form becomes the unspecified address.
func putHost(rec []byte, p int, addr netip.Addr, port int32, v6 bool) int {
	if v6 {
		if !addr.IsValid() {
			addr = netip.IPv6Unspecified()
		}
		a := addr.As16()
		p += copy(rec[p:], a[:])
	} else {
		addr = addr.Unmap()
		if !addr.Is4() {
			addr = netip.IPv4Unspecified()
		}
		a := addr.As4()
		p += copy(rec[p:], a[:])
	}
	binary.BigEndian.PutUint32(rec[p:], uint32(port))
	return p + 4
}
