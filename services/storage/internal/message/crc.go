package message

import (
	"hash/crc32"
	"math/bits"
)

const (
	// CRCSize is the size of the `__CRC32#` property at the end of a record, bytes.
	CRCSize = len(crcPrefix) + crcDigits + 1

	crcPrefix = PropertyCRC32 + "\x01"
	crcDigits = 10
	crcMask   = 0x7FFFFFFF
	// directCRC is the record size up to which computing the whole checksum anew is cheaper than correcting it.
	directCRC = 4096
)

// BodyCRC returns the checksum of a body as records store it: CRC-32 IEEE, lower 31 bits; 0 for an empty body.
func BodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & crcMask }

// recordCRC returns the checksum over everything before the record's `__CRC32#` property.
func recordCRC(rec []byte) uint32 { return crc32.ChecksumIEEE(rec[:len(rec)-CRCSize]) & crcMask }

// sums returns the checksums of the body, and of everything before the record's `__CRC32#` property where sealed says that
// there is one. Of a long record the body is read once: crc(ab) = crc(a) shifted by b's length xor crc(b).
func (v *View) sums(rec []byte, sealed bool) (body, record uint32) {
	body = crc32.ChecksumIEEE(v.Body)
	switch at := len(rec) - len(v.Properties) - 2 - len(v.Topic) - 1 - v.topicExtra(); { // of the body's end
	case !sealed:
	case len(v.Body) <= directCRC:
		record = recordCRC(rec)
	default:
		record = shiftCRC(crc32.ChecksumIEEE(rec[:at-len(v.Body)]), len(v.Body)) ^ body
		record = crc32.Update(record, crc32.IEEETable, rec[at:len(rec)-CRCSize]) & crcMask
	}
	return body & crcMask, record
}

// reserveCRC writes the property over the record's last bytes. Where Stamp will correct the checksum instead of computing
// it, that of the unstamped record is put in.
func reserveCRC(rec []byte) {
	tail := rec[len(rec)-CRCSize:]
	copy(tail, crcPrefix)
	tail[CRCSize-1] = pairSeparator
	crc := uint32(0)
	if len(rec) > directCRC {
		crc = recordCRC(rec)
	}
	putCRCDigits(rec, crc)
}

// endsInCRC reports whether the last property is a `__CRC32#` of the right shape. It serves records and properties.
func endsInCRC(b []byte) bool {
	if len(b) < CRCSize {
		return false
	}
	tail := b[len(b)-CRCSize:]
	return string(tail[:len(crcPrefix)]) == crcPrefix && tail[CRCSize-1] == pairSeparator
}

// crcDamaged reports whether the last bytes were a `__CRC32#` property once: most of its fixed bytes are in place, but
// not all.
func crcDamaged(props []byte) bool {
	if len(props) < CRCSize || endsInCRC(props) {
		return false
	}
	tail := props[len(props)-CRCSize:]
	same := 0
	for i := range len(crcPrefix) {
		if tail[i] == crcPrefix[i] {
			same++
		}
	}
	if tail[CRCSize-1] == pairSeparator {
		same++
	}
	return same > len(crcPrefix)/2
}

// putCRCDigits writes the decimal digits, least significant first.
func putCRCDigits(rec []byte, crc uint32) {
	d := rec[len(rec)-crcDigits-1 : len(rec)-1]
	for i := range d {
		d[i] = byte('0' + crc%10)
		crc /= 10
	}
}

// storedCRC reads the digits back. Anything that is no digit gives a value that no checksum has.
func storedCRC(rec []byte) uint32 {
	d := rec[len(rec)-crcDigits-1 : len(rec)-1]
	var n uint64
	for i := len(d) - 1; i >= 0; i-- {
		c := d[i] - '0'
		if c > 9 {
			return ^uint32(0)
		}
		n = n*10 + uint64(c)
	}
	if n > crcMask {
		return ^uint32(0)
	}
	return uint32(n)
}

// rawCRC is the CRC without the inversions at its beginning and end, which make it linear:
// rawCRC(a) xor rawCRC(b) = rawCRC(a xor b) for a and b of one length.
func rawCRC(b []byte) uint32 { return ^crc32.Update(^uint32(0), crc32.IEEETable, b) }

// shiftCRC returns what n zero bytes behind its input make of a raw checksum.
func shiftCRC(crc uint32, n int) uint32 {
	for u := uint(n); u != 0; u &= u - 1 {
		crc = mulCRC(crc, zeroBytes[bits.TrailingZeros(u)])
	}
	return crc
}

// zeroBytes[k] is the factor of 2^k zero bytes: x^(8*2^k) modulo the polynomial, bits reversed as in crc32.IEEE.
var zeroBytes = func() (t [31]uint32) {
	f := uint32(1) << (31 - 8) // x^8
	for i := range t {
		t[i] = f
		f = mulCRC(f, f)
	}
	return t
}()

// mulCRC multiplies two polynomials modulo that of crc32.IEEE, bits reversed.
func mulCRC(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return p
}
