package mappedfile

// Bodies are bytes side by side that are cut where files end.
type Bodies struct {
	bodies [][]byte
	pos    int // into the first one
}

// NewBodies does not change bodies, and keeps them.
func NewBodies(bodies [][]byte) Bodies { return Bodies{bodies: bodies} }

// More reports whether there are bytes left.
func (c *Bodies) More() bool {
	for len(c.bodies) > 0 && c.pos == len(c.bodies[0]) {
		c.bodies, c.pos = c.bodies[1:], 0
	}
	return len(c.bodies) > 0
}

// Take appends pieces of at most n bytes together to dst.
func (c *Bodies) Take(dst [][]byte, n int64) [][]byte {
	for n > 0 && c.More() {
		p := c.bodies[0][c.pos:]
		p = p[:min(int64(len(p)), n)]
		dst = append(dst, p)
		c.pos += len(p)
		n -= int64(len(p))
	}
	return dst
}
