package main

import (
	"context"
	"io"
)

// input makes reads end with ctx: what waits for a terminal or a pipe does not see a signal. A read that is left behind
// lasts until the process ends. It is not for concurrent use.
type input struct {
	ctx  context.Context //nolint:containedctx // an io.Reader has no other way to see it
	r    io.Reader
	buf  []byte
	rest []byte
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if len(in.rest) == 0 {
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

func (in *input) fill() error {
	if in.ctx.Err() != nil {
		return in.ctx.Err()
	}
	if in.buf == nil {
		in.buf = make([]byte, 1<<16)
	}
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	go func() {
		n, err := in.r.Read(in.buf)
		done <- result{n, err}
	}()
	select {
	case got := <-done:
		in.rest = in.buf[:got.n]
		if got.n > 0 {
			return nil // an error comes again
		}
		return got.err
	case <-in.ctx.Done():
		return in.ctx.Err()
	}
}
