package remoting

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
)

// Version is the RocketMQ version that frames of this service name: 4.9.7's. Name servers ignore the topics of a broker that
// names none.
const Version = 407

// Request codes.
const (
	GetAllTopicConfig             = 21
	GetAllConsumerOffset          = 43
	GetAllDelayOffset             = 45
	RegisterBroker                = 103
	UnregisterBroker              = 104
	GetAllSubscriptionGroupConfig = 201
	GetAllMessageRequestMode      = 402
	ExchangeBrokerHAInfo          = 906
)

// Response codes.
const (
	Success          = 0
	SystemError      = 1
	CodeNotSupported = 3
)

// Errors of a connection.
var (
	ErrUnreachable = errdefs.New(errdefs.Unavailable, "REMOTING_UNREACHABLE", "nobody answers at this address").
			WithRemedy("start it, or correct the address: it is the remoting port, 10911 of a broker and 9876 of a name server")
	ErrLost    = errdefs.New(errdefs.Unavailable, "REMOTING_LOST", "the connection ended")
	ErrTimeout = errdefs.New(errdefs.DeadlineExceeded, "REMOTING_TIMEOUT", "no whole answer in time")
	// ErrRefused is an answer that is no success. Metadata: code, remark.
	ErrRefused = errdefs.New(errdefs.FailedPrecondition, "REMOTING_REFUSED", "the answer is an error")
)

// Dial opens a connection.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Conn is a connection to a RocketMQ process, for one goroutine.
type Conn struct {
	conn     net.Conn
	in       *bufio.Reader
	maxFrame int
	last     int32 // number of the last request
}

// Connect connects to addr. Answers may be as large as maxFrame.
func Connect(ctx context.Context, dial Dial, addr string, maxFrame int) (*Conn, error) {
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, ErrUnreachable.With("address", addr).Wrap(err)
	}
	return &Conn{conn: conn, in: bufio.NewReader(conn), maxFrame: maxFrame}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Call sends a request and returns its answer, which is a success. After any error but ErrRefused the connection is of no use.
func (c *Conn) Call(ctx context.Context, code int32, fields map[string]string, body []byte) (*frame.Command, []byte, error) {
	defer c.bind(ctx)()
	c.last++
	b := frame.Append(nil, &frame.Command{Code: code, Language: frame.Go, Version: Version, Opaque: c.last, Fields: fields}, len(body))
	if _, err := c.conn.Write(append(b, body...)); err != nil {
		return nil, nil, c.failed(ctx, err)
	}
	for {
		answer, size, err := ReadHeader(c.in, c.maxFrame)
		switch {
		case err != nil:
			return nil, nil, c.failed(ctx, err)
		case !answer.Response() || answer.Opaque != c.last: // a request, or the answer to what nobody waits for any more
			err = skip(c.in, size)
		default:
			body, err = read(c.in, size)
			if err == nil && answer.Code != Success {
				return nil, nil, ErrRefused.With("code", answer.Code).With("remark", answer.Remark[:min(len(answer.Remark), 300)])
			}
			if err == nil {
				return answer, body, nil
			}
		}
		if err != nil {
			return nil, nil, c.failed(ctx, err)
		}
	}
}

// Idle waits for d and skips what comes unasked. An error: the connection was lost, or ctx has ended.
func (c *Conn) Idle(ctx context.Context, d time.Duration) error {
	idle, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	defer c.bind(idle)()
	for {
		_, err := c.in.Peek(1)
		if err != nil && ctx.Err() == nil && errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		var size int
		if err == nil {
			_, size, err = ReadHeader(c.in, c.maxFrame)
		}
		if err == nil {
			err = skip(c.in, size)
		}
		if err != nil {
			return c.failed(ctx, err)
		}
	}
}

// bind makes reads and writes fail when ctx ends, until the returned function has.
func (c *Conn) bind(ctx context.Context) func() {
	deadline, _ := ctx.Deadline()
	_ = c.conn.SetDeadline(deadline) // a connection that is closed fails when it is used
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.conn.SetDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

func (c *Conn) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrTimeout
	case errdefs.As(err) != nil:
		return err
	}
	return ErrLost.Wrap(err)
}

// ReadHeader reads a frame up to its body and returns the body's size. io.EOF: there is no further frame.
func ReadHeader(r io.Reader, maxFrame int) (*frame.Command, int, error) {
	var b [frame.PrefixSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return nil, 0, err
	}
	p, err := frame.ParsePrefix(b[:], maxFrame)
	if err != nil {
		return nil, 0, err
	}
	header, err := read(r, p.Header)
	if err != nil {
		return nil, 0, err
	}
	c, err := frame.Parse(p.Encoding, header)
	return c, p.Body, err
}

// read reads n bytes; memory is taken as they arrive.
func read(r io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return nil, whole(err)
	}
	return b.Bytes(), nil
}

// skip reads n bytes and keeps none.
func skip(r io.Reader, n int) error {
	_, err := io.CopyN(io.Discard, r, int64(n))
	return whole(err)
}

// whole says that what should have come did not.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
