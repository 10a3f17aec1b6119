package serve

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// kindOf returns the table that a request code asks for.
func kindOf(code int32) (entry.Kind, bool) {
	switch code {
	case remoting.GetAllTopicConfig:
		return entry.Topics, true
	case remoting.GetAllConsumerOffset:
		return entry.ConsumerOffsets, true
	case remoting.GetAllDelayOffset:
		return entry.DelayOffsets, true
	case remoting.GetAllSubscriptionGroupConfig:
		return entry.Groups, true
	}
	return 0, false
}

// headerRoom is kept for the header of an answer with a table.
const headerRoom = 1 << 10

// answer composes the answer to a request, in the encoding of the request.
func (s *Server) answer(ctx context.Context, req *frame.Command) (*frame.Command, []byte) {
	resp := &frame.Command{
		Encoding: req.Encoding, Code: remoting.Success, Language: frame.Go, Version: remoting.Version, Opaque: req.Opaque, Flag: frame.FlagResponse,
	}
	var body []byte
	var err error
	kind, isTable := kindOf(req.Code)
	switch {
	case isTable:
		body, err = s.table(kind)
	case req.Code == remoting.GetAllMessageRequestMode:
		if body = []byte(`{"messageRequestModeMap":{}}`); s.leads() != nil {
			err = s.leads()
		}
	case req.Code == remoting.ExchangeBrokerHAInfo:
		resp.Fields, err = s.haInfo(ctx)
	default:
		resp.Code = remoting.CodeNotSupported
		resp.Remark = fmt.Sprintf("request code %d is not supported: this is a config sync service of Tandem, messages are the storage's", req.Code)
	}
	if err != nil {
		resp.Code, resp.Remark, resp.Fields, body = remoting.SystemError, remark(err), nil, nil
	}
	return resp, body
}

// remark is an error in a bounded number of words.
func remark(err error) string {
	text := err.Error()
	if e := errdefs.As(err); e != nil {
		text = e.Reason + ": " + text
	}
	return text[:min(len(text), 1000)]
}

var (
	errNotLeading = errdefs.New(errdefs.FailedPrecondition, "NOT_MASTER", "this node is no open master")
	errNoEntries  = errdefs.New(errdefs.FailedPrecondition, "EMPTY_TABLE", "the table is empty here, and a slave would delete its own")
	errTooLarge   = errdefs.New(errdefs.ResourceExhausted, "TABLE_TOO_LARGE", "the table does not fit into a frame").
			WithRemedy("raise remoting.maxFrame, and com.rocketmq.remoting.frameMaxLength on the slaves")
)

func (s *Server) leads() error {
	if _, _, err := s.role.Reign(); err != nil {
		return errNotLeading.Wrap(err)
	}
	return nil
}

// table returns a whole table, or why the slave must not have one.
func (s *Server) table(k entry.Kind) ([]byte, error) {
	if err := s.leads(); err != nil {
		return nil, err
	}
	if err := s.tables.Whole(k); err != nil {
		return nil, err
	}
	t := s.tables.Snapshot(k)
	if t.Len() == 0 && k != entry.ConsumerOffsets { // of those a slave deletes none
		return nil, errNoEntries.With("kind", k)
	}
	body := s.bodies.of(t)
	if len(body) > s.o.MaxFrame-headerRoom {
		return nil, errTooLarge.With("kind", k).With("size", len(body)).With("max", s.o.MaxFrame)
	}
	return body, nil
}

// haInfo is what a slave that may act as master asks: who is master, and how much of its log is safe.
func (s *Server) haInfo(ctx context.Context) (map[string]string, error) {
	if err := s.leads(); err != nil {
		return nil, err
	}
	var flushed int64
	if s.o.Flushed != nil {
		var err error
		if flushed, err = s.o.Flushed(ctx); err != nil {
			return nil, err
		}
	}
	return map[string]string{
		"masterHaAddress": s.o.HAServerAddr, "masterFlushOffset": strconv.FormatInt(flushed, 10), "masterAddress": s.o.BrokerAddr,
	}, nil
}

// bodies are the tables as they were answered last.
type bodies [5]struct {
	mu   sync.Mutex // held while the JSON is made: who asks meanwhile gets it too
	from *table.Table
	json []byte
}

// of returns the JSON of a table; nobody may change it.
func (b *bodies) of(t *table.Table) []byte {
	one := &b[t.Kind()]
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.from != t {
		one.from, one.json = t, jsonfile.AppendWire(nil, t)
	}
	return one.json
}
