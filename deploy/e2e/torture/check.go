package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// history is what a checker found.
type history struct {
	bad      []string
	vanished int // seen by a reader without PUT_OK, and gone: allowed without refuseWithoutReplicas
	maybes   int // no PUT_OK, and there
}

// most violations that one round reports; the rest is counted.
const mostBad = 20

func (h *history) violation(format string, args ...any) {
	h.bad = append(h.bad, fmt.Sprintf(format, args...))
}

// image is all queues of a node, by queue and queue offset.
type image [][]record

func (i image) ends() []int64 {
	ends := make([]int64, queues)
	for q, rs := range i {
		ends[q] = int64(len(rs))
	}
	return ends
}

// readAll reads a node's queues from their first message.
func (c *cluster) readAll(ctx context.Context, id int) (image, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	img := make(image, queues)
	m := c.message(id)
	for q := range int32(queues) {
		for {
			at := int64(len(img[q]))
			r, err := m.Get(ctx, &storagev1.GetRequest{Topic: topic, QueueId: q, QueueOffset: at, MaxMessages: 1024, MaxBytes: 1 << 20})
			if err != nil {
				return nil, fmt.Errorf("%s, queue %d: %w", c.nodes[id].Name, q, err)
			}
			if len(r.GetMessages()) == 0 {
				if r.GetMaxQueueOffset() > at {
					return nil, fmt.Errorf("%s, queue %d: nothing at %d, but it ends at %d: %v", c.nodes[id].Name, q, at, r.GetMaxQueueOffset(), r.GetStatus())
				}
				break
			}
			for i, sm := range r.GetMessages() {
				n, err := parse(sm)
				if err == nil && sm.GetQueueOffset() != at+int64(i) {
					err = fmt.Errorf("queue offset %d stands at %d", sm.GetQueueOffset(), at+int64(i))
				}
				if err != nil {
					return nil, fmt.Errorf("%s, queue %d: %w", c.nodes[id].Name, q, err)
				}
				img[q] = append(img[q], record{n, sm.GetOffset()})
			}
		}
	}
	return img, nil
}

// checkPuts holds one node's messages against what the writers were told.
func (h *history) checkPuts(name string, img image, puts []put, first bool) {
	there := make([]bool, len(puts))
	for q, rs := range img {
		for at, r := range rs {
			if r.number >= len(puts) {
				h.violation("%s: message %d, which nobody sent, at offset %d", name, r.number, r.offset)
				continue
			}
			p := puts[r.number]
			if there[r.number] {
				h.violation("%s: message %d (%s) stands twice; once at offset %d, queue %d, queue offset %d", name, r.number, p.what, r.offset, q, at)
			}
			there[r.number] = true
			switch {
			case p.fate == absent:
				h.violation("%s: message %d (%s) stands at offset %d, queue %d, queue offset %d", name, r.number, p.what, r.offset, q, at)
			case p.fate == stored && (p.offset != r.offset || int(p.queue) != q || p.queueOffs != int64(at)):
				h.violation("%s: message %d was acknowledged at offset %d, queue %d, queue offset %d and stands at %d, %d, %d",
					name, r.number, p.offset, p.queue, p.queueOffs, r.offset, q, at)
			case p.fate == maybe && first:
				h.maybes++
			}
		}
	}
	for n, p := range puts {
		if p.fate == stored && !there[n] {
			h.violation("%s: message %d was acknowledged at offset %d, queue %d, queue offset %d and is not there", name, n, p.offset, p.queue, p.queueOffs)
		}
	}
}

// checkReader holds what one reader saw against what is there.
func (h *history) checkReader(r *reader, img image, puts []put, refuse bool) {
	for _, b := range r.bad {
		h.violation("%s: %s", r.name, b)
	}
	times := map[int]int{}
	for q, seen := range r.seen {
		for i, rec := range seen {
			if times[rec.number]++; times[rec.number] == 2 {
				h.violation("%s saw message %d twice", r.name, rec.number)
			}
			at := r.from[q] + int64(i)
			if at < int64(len(img[q])) && img[q][at] == rec {
				continue
			}
			if rec.number >= 0 && rec.number < len(puts) && !refuse && puts[rec.number].fate != stored {
				h.vanished++
				continue
			}
			h.violation("%s saw message %d at queue %d, queue offset %d, offset %d, and it vanished", r.name, rec.number, q, at, rec.offset)
		}
	}
}

// checkBytes compares checksums and files of all nodes.
func (h *history) checkBytes(ctx context.Context, c *cluster, end int64) error {
	var sums []uint32
	for id, n := range c.nodes {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		r, err := c.admin(id).Checksum(ctx, &storagev1.ChecksumRequest{ToOffset: end, StretchSize: 64 << 10})
		if err == nil {
			_, err = c.admin(id).FlushNow(ctx, &storagev1.FlushNowRequest{})
		}
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		if id == 0 {
			sums = r.GetChecksums()
		} else if !slices.Equal(sums, r.GetChecksums()) {
			h.violation("%s: the checksums of the log up to %d differ from those of n0", n.Name, end)
		}
	}
	var log, units map[string][]byte
	for id, n := range c.nodes {
		l, err := logFiles(n.dir, end)
		if err != nil {
			return err
		}
		u, err := queueUnits(n.dir)
		if err != nil {
			return err
		}
		if id == 0 {
			log, units = l, u
			continue
		}
		h.same(n.Name, "log file", log, l)
		h.same(n.Name, "queue", units, u)
	}
	return nil
}

func (h *history) same(name, what string, want, got map[string][]byte) {
	for k, b := range want {
		if !bytes.Equal(b, got[k]) {
			h.violation("%s: %s %s has other bytes than on n0 (%d, %d)", name, what, k, len(got[k]), len(b))
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			h.violation("%s: %s %s is not on n0", name, what, k)
		}
	}
}

// logFiles returns the files of a log up to end.
func logFiles(store string, end int64) (map[string][]byte, error) {
	dir := filepath.Join(store, "commitlog")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, f := range files {
		base, err := strconv.ParseInt(f.Name(), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s in %s is no log file", f.Name(), dir)
		}
		if base >= end {
			continue // made ahead
		}
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return nil, err
		}
		out[f.Name()] = b[:min(int64(len(b)), end-base)]
	}
	return out, nil
}

// unit is an entry of a queue file: offset, size, hash of the tag.
const unit = 20

// queueUnits returns the units of every queue by topic/queue, without the zeros behind the last.
func queueUnits(store string) (map[string][]byte, error) {
	out := map[string][]byte{}
	root := filepath.Join(store, "consumequeue")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		out[rel] = append(out[rel], b...)
		return err
	})
	none := make([]byte, unit)
	for k, b := range out {
		for len(b) >= unit && bytes.Equal(b[len(b)-unit:], none) {
			b = b[:len(b)-unit]
		}
		if out[k] = b; len(b) == 0 {
			delete(out, k)
		}
	}
	return out, err
}
