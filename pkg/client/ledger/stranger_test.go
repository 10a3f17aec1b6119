package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/ledger"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// TestAWrongAddressIsPassedOver: one of the addresses, be it the first, is that of another service.
func TestAWrongAddressIsPassedOver(t *testing.T) {
	g := clienttest.StartLedger(t, 2)
	fill(t, dial(t, g, ledger.Options{}), 1)
	stranger := clienttest.Start(t, clienttest.Options{}).Addr()
	for _, addrs := range [][]string{{stranger, g.Addrs()[0], g.Addrs()[1]}, {g.Addrs()[1], stranger, g.Addrs()[0]}} {
		for name, do := range uses() {
			if err := do(t, dial(t, g, ledger.Options{}, addrs...)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestWrongAddressesAloneAreAnErrorAtOnce: nobody waits for another service to become a ledger.
func TestWrongAddressesAloneAreAnErrorAtOnce(t *testing.T) {
	g := clienttest.StartLedger(t, 1)
	a, b := clienttest.Start(t, clienttest.Options{}).Addr(), clienttest.Start(t, clienttest.Options{}).Addr()
	for _, addrs := range [][]string{{a}, {a, b}} {
		for name, do := range uses() {
			err := do(t, dial(t, g, ledger.Options{Timeout: time.Hour}, addrs...))
			if errdefs.ClassOf(err) != errdefs.Unimplemented || errdefs.As(err).Meta["address"] == "" {
				t.Errorf("%s at %v: got %v", name, addrs, err)
			}
		}
	}
}

// uses are the ways to use a ledger.
func uses() map[string]func(*testing.T, *ledger.Client) error {
	return map[string]func(*testing.T, *ledger.Client) error{
		"append": func(t *testing.T, c *ledger.Client) error {
			_, err := c.Appender(ledger.AppenderOptions{}).Append(within(t, 20*time.Second), []byte("x"))
			return err
		},
		"append without a key": func(t *testing.T, c *ledger.Client) error {
			_, err := c.Appender(ledger.AppenderOptions{NoKey: true}).Append(within(t, 20*time.Second), []byte("x"))
			return err
		},
		"send": func(t *testing.T, c *ledger.Client) error {
			ctx := within(t, 20*time.Second)
			return c.Appender(ledger.AppenderOptions{}).Stream(ctx, func(s *ledger.Sender) error {
				seq, err := s.Send(ctx, []byte("x"), nil)
				if err != nil {
					return err
				}
				return s.Await(ctx, seq)
			})
		},
		"read": func(t *testing.T, c *ledger.Client) error {
			_, err := c.Bounds(within(t, 20*time.Second), ledger.Local)
			return err
		},
		"tail": func(t *testing.T, c *ledger.Client) error {
			err := c.Tail(within(t, 20*time.Second), ledger.TailOptions{}, func(*ledger.Entry) error { return errEnough })
			if errors.Is(err, errEnough) {
				err = nil
			}
			return err
		},
	}
}
