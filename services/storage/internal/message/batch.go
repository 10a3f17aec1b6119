package message

import (
	"encoding/binary"
	"iter"
	"math"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// batchFixed is the size of a batch item with empty body and properties, bytes.
const batchFixed = 22

// BatchItem is one message of a client's batch; the slices alias the batch.
type BatchItem struct {
	Flag             int32
	Body, Properties []byte
}

// AppendBatchItem appends an item as clients encode it (RocketMQ: MessageDecoder#encodeMessage). Properties of more than
// MaxProperties bytes cannot be encoded.
func AppendBatchItem(dst []byte, m BatchItem) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(batchFixed+len(m.Body)+len(m.Properties)))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // magic and body checksum, unused
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Flag))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...)
}

// DecodeClientBatch iterates over the items of a client's batch. Like RocketMQ's store it does not look at an item's
// total size, magic and checksum. The first malformed item ends it with an errdefs.Invalid of field body that names the
// item and its byte.
func DecodeClientBatch(body []byte) iter.Seq2[BatchItem, error] {
	return func(yield func(BatchItem, error) bool) {
		for at, n := 0, 0; at < len(body); n++ {
			m, size, field := decodeBatchItem(body[at:])
			if field != "" {
				yield(BatchItem{}, errdefs.Invalid("body", "batch item %d at byte %d: %s exceeds what is left", n, at, field))
				return
			}
			if !yield(m, nil) {
				return
			}
			at += size
		}
	}
}

// decodeBatchItem returns the item and its size, or the field that does not fit.
func decodeBatchItem(b []byte) (m BatchItem, size int, field string) {
	if len(b) < batchFixed {
		return m, 0, fieldTotalSize
	}
	m.Flag = int32(binary.BigEndian.Uint32(b[12:]))
	n := binary.BigEndian.Uint32(b[16:])
	if uint64(n) > uint64(len(b)-batchFixed) {
		return m, 0, fieldBodyLength
	}
	p := 20 + int(n)
	m.Body = b[20:p:p]
	l := binary.BigEndian.Uint16(b[p:])
	p += 2
	if l > math.MaxInt16 || int(l) > len(b)-p {
		return m, 0, fieldPropertiesLength
	}
	size = p + int(l)
	m.Properties = b[p:size:size]
	return m, size, ""
}
