package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// TestReadersPassOverAWrongAddress: the first address is that of another service. Alone it is an error.
func TestReadersPassOverAWrongAddress(t *testing.T) {
	a := clienttest.Start(t, clienttest.Options{})
	put(t, a, 0, 1)
	stranger := clienttest.StartLedger(t, 1).Addrs()[0]
	for _, addrs := range [][]string{{stranger, a.Addr()}, {stranger}} {
		c, err := client.Dial(t.Context(), client.Options{Addresses: addrs, Timeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, listed := c.Reader().Queues(t.Context(), "t")
		tailed := c.Reader().Tail(t.Context(), client.TailOptions{Topic: "t"}, func(*client.StoredMessage) error { return errEnough })
		if errors.Is(tailed, errEnough) {
			tailed = nil
		}
		for _, err := range []error{listed, tailed} {
			if alone := len(addrs) == 1; alone != (errdefs.ClassOf(err) == errdefs.Unimplemented) || !alone && err != nil {
				t.Errorf("%v: got %v", addrs, err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

var errEnough = errors.New("enough")
