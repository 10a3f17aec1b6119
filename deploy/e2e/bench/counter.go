package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
)

// counter forwards connections and counts what goes through.
type counter struct {
	ln     net.Listener
	to     string
	bytes  atomic.Int64
	copies sync.WaitGroup
}

func newCounter(ctx context.Context, to string) (*counter, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{ln: ln, to: to}
	c.copies.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				_ = in.Close() // who dialled sees it
				continue
			}
			c.copies.Go(func() { c.forward(in, out) })
			c.copies.Go(func() { c.forward(out, in) })
		}
	})
	return c, nil
}

// forward ends both when one ends.
func (c *counter) forward(from, to net.Conn) {
	defer from.Close() //nolint:errcheck // what it has read is through
	defer to.Close()   //nolint:errcheck // the other one has ended
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		c.bytes.Add(int64(n))
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// end waits for the connections, whose ends are gone.
func (c *counter) end() {
	_ = c.ln.Close() // it accepts no more, in any case
	c.copies.Wait()
}
