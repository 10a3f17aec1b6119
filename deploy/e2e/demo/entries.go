package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
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

// readEntries reads the data files of a ledger's folder.
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
		for at := 0; at+entryHeader <= len(b) && binary.BigEndian.Uint32(b[at:]) == 1; {
			h := b[at:]
			length := int(binary.BigEndian.Uint32(h[44:]))
			if at+entryHeader+length > len(b) {
				return nil, fmt.Errorf("%s: the entry at byte %d does not end in its file", f.Name(), at)
			}
			e := entry{
				index: int64(binary.BigEndian.Uint64(h[8:])), term: int64(binary.BigEndian.Uint64(h[16:])), //nolint:gosec // as written
				channel: binary.BigEndian.Uint32(h[32:]), body: bytes.Clone(h[entryHeader : entryHeader+length]),
			}
			if e.index != int64(len(all)) {
				return nil, fmt.Errorf("%s: entry %d at byte %d, where %d is due", f.Name(), e.index, at, len(all))
			}
			all = append(all, e)
			at += entryHeader + length
		}
	}
	return all, nil
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
