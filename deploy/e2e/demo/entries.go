package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"hash/crc32"
	"os"
	"path/filepath"
)

// entry is one of a ledger's log as it lies in its files (services/ledger/internal/entrylog/FORMAT.md).
type entry struct {
	index, term int64
	channel     uint32
	body        []byte
}

const entryHeader = 48

// readEntries reads the data files of a ledger's folder up to the first entry that is not whole: it was being written when the
// node was killed, or there is none.
func readEntries(folder string) ([]entry, error) {
	dir := filepath.Join(folder, "data")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		for at := 0; ; {
			e, size, ok := soundEntry(b[at:], int64(len(all)))
			if !ok {
				break
			}
			all = append(all, e)
			at += size
		}
	}
	return all, nil
}

// soundEntry takes the entry of this index from the beginning of b.
func soundEntry(b []byte, index int64) (e entry, size int, ok bool) {
	if len(b) < entryHeader || binary.BigEndian.Uint32(b) != 1 {
		return e, 0, false
	}
	size = entryHeader + int(binary.BigEndian.Uint32(b[44:]))
	if size > len(b) {
		return e, 0, false
	}
	e = entry{
		index: int64(binary.BigEndian.Uint64(b[8:])), term: int64(binary.BigEndian.Uint64(b[16:])), //nolint:gosec // as written
		channel: binary.BigEndian.Uint32(b[32:]), body: bytes.Clone(b[entryHeader:size]),
	}
	return e, size, e.index == index && crc32.ChecksumIEEE(e.body) == binary.BigEndian.Uint32(b[40:])
}

// sumOf is a checksum over what all replicas of a log have in common.
func sumOf(all []entry) []byte {
	h := sha256.New()
	for _, e := range all {
		addNumbers(h, e.index, e.term, int64(e.channel), int64(len(e.body)))
		h.Write(e.body)
	}
	return h.Sum(nil)
}

func addNumbers(h hash.Hash, all ...int64) {
	for _, n := range all {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(n)) //nolint:gosec // its bits
		h.Write(b[:])
	}
}
