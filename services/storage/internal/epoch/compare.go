package epoch

import "github.com/tandemlog/tandem/pkg/errdefs"

// ErrBadSums says that a peer's checksums do not cover what was asked.
var ErrBadSums = errdefs.New(errdefs.Aborted, "BAD_CHECKSUMS", "the peer's checksums do not cover what was asked")

// Sizes of a comparison, bytes.
const (
	compareRound   = 256 << 20 // summed by one call, so that it ends within its deadline
	compareStretch = 1 << 20
	compareParts   = 64
	compareLeast   = 4 << 10
)

// Compare finds the first byte at which two logs differ, from checksums of stretches alone. It is a step machine: ask both
// sides for what Next names, give the answers to Step, until Next has no more.
//
//	[from ........................................ to)      rounds of 256 MiB, stretches of 1 MiB
//	              equal | differs | not looked at
//	                    [.. 1 MiB ..)                       stretches of 16 KiB
//	                       [. 16 .)                         of 4 KiB
//	                         [ 4 )                          halves, down to the byte
type Compare struct {
	at, to  int64 // equal below at; a difference, if found, lies below to
	stretch int64
	found   bool
}

// NewCompare compares [from, to).
func NewCompare(from, to int64) *Compare {
	return &Compare{at: from, to: max(from, to), stretch: compareStretch}
}

// Next returns the range to sum and the length of a stretch; more is false when Equal is final.
func (c *Compare) Next() (from, to, stretch int64, more bool) {
	if c.at >= c.to || c.found && c.to-c.at == 1 {
		return 0, 0, 0, false
	}
	if c.found && c.stretch < compareLeast {
		return c.at, c.at + (c.to-c.at)/2, compareLeast, true
	}
	return c.at, min(c.to, c.at+compareRound), c.stretch, true
}

// Step takes the checksums of what Next named, from both sides, and how far the peer's reach.
func (c *Compare) Step(mine, theirs []uint32, theirsTo int64) error {
	from, to, stretch, more := c.Next()
	n := int64(0)
	if more {
		n = (to - from + stretch - 1) / stretch
	}
	if !more || theirsTo != to || int64(len(theirs)) != n || int64(len(mine)) != n {
		return ErrBadSums.With("from", from).With("to", to).With("peer_to", theirsTo).With("sums", len(theirs))
	}
	for i := range mine {
		if mine[i] == theirs[i] {
			continue
		}
		c.at = from + int64(i)*stretch
		c.to = min(to, c.at+stretch)
		c.found = true
		c.stretch = stretch / compareParts
		if stretch > compareLeast {
			c.stretch = max(c.stretch, compareLeast)
		}
		return nil
	}
	c.at = to
	return nil
}

// Equal returns the offset below which both logs have the same bytes.
func (c *Compare) Equal() int64 { return c.at }
