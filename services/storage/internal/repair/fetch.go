package repair

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const (
	around  = 1 << 20   // bytes on each side of a damage that must be equal
	piece   = 8 << 20   // bytes fetched at a time, unless a record is longer
	longest = 128 << 20 // record, bytes
	// callTimeout bounds each call of the source.
	callTimeout = time.Minute
	// stretch of a checksum, bytes: the least that a storage takes.
	least = 4 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stretch repairs one stretch.
func (j *job) stretch(ctx context.Context, s stretch) Range {
	r := Range{From: s.from, To: s.to}
	if r.Err = j.sameHistory(ctx, s); r.Err != nil {
		return r
	}
	for at := s.from; at < s.to; {
		data, err := j.fetch(ctx, at, s.to)
		if err == nil {
			err = j.replace(at, data, &r)
		}
		if err != nil {
			r.Err = err
			break
		}
		at += int64(len(data))
	}
	return r
}

// sameHistory proves that the source's bytes there are those that this node had.
func (j *job) sameHistory(ctx context.Context, s stretch) error {
	if s.from < j.heard.First || s.to > j.heard.End {
		return ErrLacks.With("from", s.from).With("to", s.to).With("source_first", j.heard.First).With("source_end", j.heard.End)
	}
	if s.to > j.parted {
		return ErrDiffers.With("from", s.from).With("to", s.to).With("parted_at", j.parted)
	}
	before := stretch{max(s.from-around, j.log.FirstOffset(), j.heard.First), s.from}
	behind := stretch{s.to, min(s.to+around, j.log.Written().Load(), j.parted)}
	for _, o := range append(j.around, j.bad...) {
		if o.to <= s.from {
			before.from = max(before.from, o.to)
		}
		if o.from >= s.to {
			behind.to = min(behind.to, o.from)
		}
	}
	equal := int64(0)
	for _, side := range []stretch{before, behind} {
		if side.from >= side.to {
			continue
		}
		data, err := j.have(side.from, side.to)
		if err == nil {
			err = j.matches(ctx, side.from, data)
		}
		if errors.Is(err, ErrChanged) {
			err = ErrDiffers.With("compared_from", side.from).With("compared_to", side.to).
				WithMsg("what stands beside the damage is not the same in the source").
				WithRemedy("`tandemctl verify` of both nodes shows where they differ; where it is but a few bytes and the source is right, " +
					"`tandemctl repair NODE --from PEER --range FIRST-END` over all of it; else name a node that has followed the same master")
		}
		if err != nil {
			return err
		}
		equal += side.to - side.from
	}
	if equal == 0 && j.common == 0 {
		return ErrDiffers.With("from", s.from).With("to", s.to).WithMsg("neither epochs nor equal bytes say that the source has the same history")
	}
	return nil
}

// have returns this node's bytes.
func (j *job) have(from, to int64) ([]byte, error) {
	out := make([]byte, 0, to-from)
	for from < to {
		b, release, err := j.log.View(from, int(to-from))
		if err != nil {
			return nil, fmt.Errorf("read log at %d: %w", from, err)
		}
		out = append(out, b...)
		from += int64(len(b))
		release()
		if len(b) == 0 {
			return nil, ErrChanged.With("offset", from).WithMsg("the log was cut meanwhile")
		}
	}
	return out, nil
}

// matches asks the source for its checksum of what data is: ErrChanged when it is another.
func (j *job) matches(ctx context.Context, from int64, data []byte) error {
	for off := int64(0); off < int64(len(data)); {
		n := min(int64(len(data))-off, 64<<20)
		cctx, cancel := context.WithTimeout(ctx, callTimeout)
		sums, to, err := j.o.Sources.RangeChecksum(cctx, j.Source, from+off, from+off+n, max(n, least))
		cancel()
		if err != nil {
			return fmt.Errorf("ask for a checksum: %w", err)
		}
		if to != from+off+n || len(sums) != 1 || sums[0] != crc32.Checksum(data[off:off+n], castagnoli) {
			return ErrChanged.With("from", from+off).With("to", from+off+n)
		}
		off += n
	}
	return nil
}

// fetch returns the next whole records of the source, from at on, up to to or the end of the file, and has proved them.
func (j *job) fetch(ctx context.Context, at, to int64) ([]byte, error) {
	size := j.log.FileSize()
	end := at - at%size + size
	for want := int64(piece); ; want *= 2 {
		upTo := min(at+want, to, end)
		cctx, cancel := context.WithTimeout(ctx, callTimeout)
		data, err := j.o.Sources.Range(cctx, j.Source, at, upTo)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("fetch [%d, %d): %w", at, upTo, err)
		}
		if int64(len(data)) != upTo-at {
			return nil, ErrChanged.With("offset", at).With("want", upTo-at).With("got", len(data))
		}
		n, err := whole(data, at, end)
		if err != nil {
			return nil, ErrDamaged.Wrap(err)
		}
		last := upTo == min(to, end)
		if last && n < len(data) || n == 0 && want > longest {
			return nil, ErrDiffers.With("offset", at+int64(n)).With("to", upTo).WithMsg("the source's records do not end where this node's do")
		}
		if n > 0 {
			return data[:n], j.matches(ctx, at, data[:n])
		}
	}
}

// whole returns how many bytes of b, from offset at on, are whole records; the last one may be cut in two.
func whole(b []byte, at, fileEnd int64) (int, error) {
	n := 0
	for n < len(b) {
		size, kind, err := message.Check(b[n:], at+int64(n), message.CheckOptions{CRC: true, Offset: true})
		var bad *message.CorruptError
		switch {
		case errors.As(err, &bad) && bad.Short:
			return n, nil
		case err != nil:
			return n, err //nolint:wrapcheck // names offset and field
		case kind == message.End && fileEnd-at-int64(n) < message.BlankSize:
			return len(b), nil
		case kind == message.End:
			return n, message.ErrCorrupt.With("offset", at+int64(n)).WithMsg("there is no record, only zeros")
		case kind == message.Blank && at+int64(n+size) != fileEnd:
			return n, &message.CorruptError{Offset: at + int64(n), Field: "blankSize", Want: fileEnd - at - int64(n), Got: int64(size)}
		}
		n += size
	}
	return n, nil
}

// replace writes proved bytes in place and mends what follows from them.
func (j *job) replace(at int64, data []byte, r *Range) error {
	if j.DryRun {
		have, err := j.have(at, at+int64(len(data)))
		for i := range have {
			if have[i] != data[i] {
				r.Changed++
			}
		}
		return err
	}
	did, err := j.log.Overwrite(at, data, j.o.Keep)
	if err != nil {
		return fmt.Errorf("write [%d, %d): %w", at, at+int64(len(data)), err)
	}
	r.Changed += did.Changed
	if did.Kept != "" {
		r.Kept = append(r.Kept, did.Kept)
	}
	units, err := j.o.Queues.Mend(at, at+int64(len(data)))
	r.Units += units
	return err //nolint:wrapcheck // says what it did
}
