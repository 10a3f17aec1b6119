package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// surveyTimeout bounds the question who is master.
const surveyTimeout = 3 * time.Second

// heard is the answer of one node to a survey.
type heard struct {
	node   *Node
	status *storagev1.StatusResponse
}

// Guess returns the node that puts go to.
func (s *Set) Guess() (*Node, error) {
	s.mu.Lock()
	addr := s.master
	s.mu.Unlock()
	return s.Get(addr)
}

// Moved notes that puts go to addr from now on.
func (s *Set) Moved(addr string) {
	s.mu.Lock()
	s.master = addr
	s.mu.Unlock()
}

// OpenMaster returns a node that says of itself that it is an open master: the guess if it does, else one found by asking.
func (s *Set) OpenMaster(ctx context.Context) (*Node, error) {
	n, err := s.Guess()
	if err != nil {
		return nil, err
	}
	ask, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	st, err := n.Admin.Status(ask, &storagev1.StatusRequest{})
	if err == nil && isOpenMaster(st) {
		return n, nil
	}
	return s.FindMaster(ctx)
}

// FindMaster asks all addresses, and the upstreams of the slaves among them, who is the open master, and notes it.
func (s *Set) FindMaster(ctx context.Context) (*Node, error) {
	s.mu.Lock()
	addrs := slices.Clone(s.addresses)
	if !slices.Contains(addrs, s.master) {
		addrs = append(addrs, s.master)
	}
	s.mu.Unlock()
	answers, errs := s.survey(ctx, addrs)
	best := bestMaster(answers)
	if best == nil {
		var more []string
		for _, h := range answers {
			up := h.status.GetUpstream().GetAddress()
			if CheckAddress(up) == nil && !slices.Contains(addrs, up) && !slices.Contains(more, up) {
				more = append(more, up)
			}
		}
		hop, hopErrs := s.survey(ctx, more)
		best, answers, errs = bestMaster(hop), append(answers, hop...), append(errs, hopErrs...)
	}
	if best == nil {
		return nil, noMaster(answers, errs)
	}
	s.Moved(best.Addr)
	return best, nil
}

// noMaster says of each node, in one sentence, why it takes no puts; when none has answered their errors say it. The remedy
// is that of the first master that is not open.
func noMaster(answers []heard, errs []error) error {
	if len(answers) == 0 {
		return Join(errs...)
	}
	parts := make([]string, 0, len(answers)+len(errs))
	remedy := ""
	for _, h := range answers {
		part := h.node.Addr + " is a slave"
		if h.status.GetRole() != storagev1.Role_ROLE_SLAVE {
			part = h.node.Addr + " is a master but not open"
			if r := h.status.GetReason(); r != "" {
				part += " (" + r + ")"
			}
			remedy = cmp.Or(remedy, h.status.GetRemedy())
		} else if up := h.status.GetUpstream(); up.GetAddress() != "" {
			if s := up.GetState(); s != storagev1.LinkState_LINK_STATE_IN_SYNC && s != storagev1.LinkState_LINK_STATE_CATCHING_UP {
				part += " without a link to"
			} else {
				part += " of"
			}
			part += " " + up.GetAddress()
		}
		parts = append(parts, part)
	}
	for _, err := range errs {
		if e := errdefs.As(err); e != nil {
			addr := e.Meta["address"]
			why := strings.TrimPrefix(strings.TrimPrefix(e.Msg, grpcx.UnreachableText), "dial tcp "+addr+": connect: ")
			parts = append(parts, fmt.Sprintf("%s is not reached (%s)", addr, strings.Replace(why, " from "+addr, "", 1)))
		}
	}
	return ErrNoMaster.WithMsg("no node takes puts: %s", strings.Join(parts, ", ")).WithRemedy("%s", remedy)
}

// survey asks every address for its status at once. The errors are those of the nodes that did not answer.
func (s *Set) survey(ctx context.Context, addrs []string) ([]heard, []error) {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	answers, errs := make([]heard, len(addrs)), make([]error, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() {
			n, err := s.Get(addr)
			if err != nil {
				errs[i] = err
				return
			}
			st, err := n.Admin.Status(ctx, &storagev1.StatusRequest{})
			answers[i], errs[i] = heard{n, st}, Explain(err, addr)
		})
	}
	wg.Wait()
	return slices.DeleteFunc(answers, func(h heard) bool { return h.status == nil }),
		slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// bestMaster returns the open master with the highest epoch, or nil.
func bestMaster(answers []heard) *Node {
	open := slices.DeleteFunc(slices.Clone(answers), func(h heard) bool { return !isOpenMaster(h.status) })
	if len(open) == 0 {
		return nil
	}
	return slices.MaxFunc(open, func(a, b heard) int { return cmp.Compare(lastEpoch(a.status), lastEpoch(b.status)) }).node
}

func isOpenMaster(s *storagev1.StatusResponse) bool {
	return s.GetOpen() && (s.GetRole() == storagev1.Role_ROLE_SYNC_MASTER || s.GetRole() == storagev1.Role_ROLE_ASYNC_MASTER)
}

func lastEpoch(s *storagev1.StatusResponse) int64 {
	if e := s.GetEpochs(); len(e) > 0 {
		return e[len(e)-1].GetEpoch()
	}
	return 0
}

// RoleName returns a role as RocketMQ's config writes it: SYNC_MASTER, ASYNC_MASTER, SLAVE.
func RoleName(r storagev1.Role) string { return EnumName(r.String(), "ROLE_", int32(r)) }

// EnumName cuts the prefix that protobuf wants from a value's name; a value that this build does not know stays a number.
func EnumName(name, prefix string, value int32) string {
	if short, ok := strings.CutPrefix(name, prefix); ok {
		return short
	}
	return strconv.Itoa(int(value))
}
