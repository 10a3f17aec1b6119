package entry

import (
	"encoding/binary"
	"math/bits"
)

// XXH64's primes.
const (
	prime1 = 0x9e3779b185ebca87
	prime2 = 0xc2b2ae3d27d4eb4f
	prime3 = 0x165667b19e3779f9
	prime4 = 0x85ebca77c2b2ae63
	prime5 = 0x27d4eb2f165667c5
)

// HashPacked is the hash of bytes as AppendPacked makes them: XXH64 with seed 0.
func HashPacked(b []byte) uint64 {
	n := uint64(len(b))
	h := uint64(prime5)
	if len(b) >= 32 {
		h, b = lanes(b)
	}
	h += n
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^round(0, binary.LittleEndian.Uint64(b)), 27)*prime1 + prime4
	}
	if len(b) >= 4 {
		h = bits.RotateLeft64(h^uint64(binary.LittleEndian.Uint32(b))*prime1, 23)*prime2 + prime3
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}

// lanes takes all whole blocks of 32 bytes.
func lanes(b []byte) (uint64, []byte) {
	var p1, p2 uint64 = prime1, prime2 // constants must not overflow
	v1, v2, v3, v4 := p1+p2, p2, uint64(0), -p1
	for ; len(b) >= 32; b = b[32:] {
		v1 = round(v1, binary.LittleEndian.Uint64(b))
		v2 = round(v2, binary.LittleEndian.Uint64(b[8:]))
		v3 = round(v3, binary.LittleEndian.Uint64(b[16:]))
		v4 = round(v4, binary.LittleEndian.Uint64(b[24:]))
	}
	h := bits.RotateLeft64(v1, 1) + bits.RotateLeft64(v2, 7) + bits.RotateLeft64(v3, 12) + bits.RotateLeft64(v4, 18)
	for _, v := range [...]uint64{v1, v2, v3, v4} {
		h = (h^round(0, v))*prime1 + prime4
	}
	return h, b
}

func round(h, v uint64) uint64 { return bits.RotateLeft64(h+v*prime2, 31) * prime1 }
