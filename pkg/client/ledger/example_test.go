package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
)

// groupForExample stands for nodes that run somewhere.
func groupForExample() (addrs []string, stop func()) {
	g := clienttest.StartLedger(exampleTB{}, 3)
	return g.Addrs(), func() {
		for _, n := range g.Nodes {
			n.Stop()
		}
	}
}

// exampleTB lets an Example use a test server.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()           {}
func (exampleTB) Cleanup(func())    {}
func (exampleTB) Fatal(args ...any) { log.Fatal(args...) }

var errSeen = errors.New("seen enough")

func Example() {
	addrs, stop := groupForExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := ledger.Dial(ledger.Options{Addresses: addrs})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = c.Close() }()

	// One entry, and where it stands.
	a := c.Appender(ledger.AppenderOptions{})
	r, err := a.Append(ctx, []byte("first"))
	switch {
	case errors.Is(err, ledger.ErrAppendUnknown):
		log.Print("it may stand: look for it")
	case err != nil:
		log.Print("not in the log: ", err)
	}
	fmt.Println("committed at", r.GetIndex())

	// Many entries, in order, each with its own outcome.
	err = a.Stream(ctx, func(s *ledger.Sender) error {
		for _, body := range []string{"second", "third"} {
			if _, err := s.Send(ctx, []byte(body), func(o ledger.Outcome) { fmt.Println("committed at", o.Index, o.Err) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Print(err)
		return
	}

	// All of it, and whatever comes.
	err = c.Tail(ctx, ledger.TailOptions{}, func(e *ledger.Entry) error {
		fmt.Println(e.GetIndex(), string(e.GetBody()))
		if e.GetIndex() == 2 {
			return errSeen
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// committed at 0
	// committed at 1 <nil>
	// committed at 2 <nil>
	// 0 first
	// 1 second
	// 2 third
	// seen enough
}
