package peer

import (
	"sync"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// answers knows who waits for what the node will say: calls by the number that travels in ReadID, which the core echoes, and one
// stream of each peer.
type answers struct {
	mu      sync.Mutex
	last    uint64
	calls   map[uint64]*waiting
	streams map[raft.NodeID]*pushStream
}

// waiting is a unary call.
type waiting struct {
	to   raft.NodeID
	want raft.MessageType
	last raft.Index        // Append: its last entry
	got  chan raft.Message // capacity 1
}

// pushStream is the answering half of a peer's Push.
type pushStream struct {
	out      chan raft.Message
	replaced chan struct{} // closed when the peer has opened another one
}

// streamAnswers bounds the answers that wait on one stream.
const streamAnswers = 1024

// expect registers a call for the answer to m and returns its number.
func (a *answers) expect(m *raft.Message) (uint64, *waiting) {
	w := &waiting{to: m.From, want: m.Type.Answer(), last: m.Index + raft.Index(len(m.Entries)), got: make(chan raft.Message, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.calls[a.last] = w
	return a.last, w
}

func (a *answers) forget(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.calls, id)
}

// open registers the stream of a peer in place of the one before.
func (a *answers) open(peer raft.NodeID) *pushStream {
	s := &pushStream{out: make(chan raft.Message, streamAnswers), replaced: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.streams[peer]; old != nil {
		close(old.replaced)
	}
	a.streams[peer] = s
	return s
}

func (a *answers) shut(peer raft.NodeID, s *pushStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s != nil && a.streams[peer] == s {
		delete(a.streams, peer)
	}
}

// give hands an answer to who waits for it; false: nobody does. An answer to a push goes to the stream too: the core may have
// merged several into it.
func (a *answers) give(m *raft.Message) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	given := false
	if w := a.calls[m.ReadID]; w != nil && w.to == m.To {
		given = offer(w.got, *m)
	}
	switch m.Type {
	case raft.AppendAnswer:
		for _, w := range a.calls {
			if w.to == m.To && w.want == m.Type && m.Refused == raft.OK && m.Index >= w.last {
				given = offer(w.got, *m) || given
			}
		}
	case raft.CompareAnswer, raft.TruncateAnswer, raft.CommitAnswer:
	default:
		return given
	}
	if s := a.streams[m.To]; s != nil {
		given = offer(s.out, *m) || given
	}
	return given
}
