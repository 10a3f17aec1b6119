package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

// Sizes of the limits, bytes.
const (
	streamPiece  = 256 << 10
	streamWindow = 8 << 20
	pingFrame    = 12 + 200
	pingAnswer   = 8
)

// What a connection to the receiving end begins with.
const (
	wantStream = 's'
	wantPing   = 'p'
)

// serve opens the receiving end of the limits.
func (w *worker) serve(ctx context.Context, _ *words, a *answer) error {
	ln, err := listen(ctx)
	if err != nil {
		return err
	}
	w.limits = ln
	a.Text["addr"] = ln.Addr().String()
	go func() { // ends with the listener, which the process closes
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			receive(c)
		}
	}()
	return nil
}

func listen(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}

func receive(c net.Conn) {
	defer c.Close() //nolint:errcheck // nothing is left to be sent
	var kind [1]byte
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		return
	}
	if kind[0] == wantPing {
		pong(c)
		return
	}
	total, buf := int64(0), make([]byte, streamPiece)
	for {
		n, err := c.Read(buf)
		total += int64(n)
		if err != nil {
			break
		}
	}
	_ = binary.Write(c, binary.BigEndian, total) // the sender sees what did not come
}

func pong(c net.Conn) {
	var frame [pingFrame]byte
	for {
		if _, err := io.ReadFull(c, frame[:]); err != nil {
			return
		}
		if _, err := c.Write(frame[:pingAnswer]); err != nil {
			return
		}
	}
}

// reach connects to a receiving end.
func reach(ctx context.Context, args *words, kind byte) (*net.TCPConn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", args.text("addr"))
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, errors.New("no TCP connection")
	}
	if err := link.Tune(tcp, args.text("congestion")); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if _, err := c.Write([]byte{kind}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return tcp, nil
}

// stream measures a plain stream of about `seconds`, from the first byte to the last one's arrival.
func (w *worker) stream(ctx context.Context, args *words, a *answer) error {
	c, err := reach(ctx, args, wantStream)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // all that counts has been confirmed
	src := make([]byte, streamWindow)
	for i := range src {
		src[i] = byte(i)
	}
	sent, began := int64(0), time.Now()
	for end := began.Add(args.duration("time")); time.Now().Before(end); {
		for pos := 0; pos < len(src); pos += streamPiece {
			if _, err := c.Write(src[pos : pos+streamPiece]); err != nil {
				return err
			}
			sent += streamPiece
		}
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	var got int64
	if err := binary.Read(c, binary.BigEndian, &got); err != nil {
		return err
	}
	if got != sent {
		return fmt.Errorf("%d bytes of %d arrived", got, sent)
	}
	a.Number["GB"] = float64(got) / 1e9
	a.Number["MB/s"] = float64(got) / 1e6 / time.Since(began).Seconds()
	return nil
}

// ping measures round trips, one at a time.
func (w *worker) ping(ctx context.Context, args *words, a *answer) error {
	c, err := reach(ctx, args, wantPing)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	var frame [pingFrame]byte
	var back [pingAnswer]byte
	took := make([]time.Duration, 0, 1<<16)
	began := time.Now()
	warm := began.Add(warmUp)
	for end := warm.Add(args.duration("time")); len(took) == 0 || began.Before(end); {
		if _, err := c.Write(frame[:]); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, back[:]); err != nil {
			return err
		}
		now := time.Now()
		if began.After(warm) {
			took = append(took, now.Sub(began))
		}
		began = now
	}
	return report(took, args.duration("time"), a)
}
