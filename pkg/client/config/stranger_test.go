package config_test

import (
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client/clienttest"
	"github.com/tandemlog/tandem/pkg/client/clienttest/configtest"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// TestAWrongAddressIsPassedOver: the first address is that of another service. Alone it is an error at once.
func TestAWrongAddressIsPassedOver(t *testing.T) {
	g := configtest.Start(t, 1)
	stranger := clienttest.Start(t, clienttest.Options{}).Addr()
	for _, local := range []bool{false, true} {
		for _, addrs := range [][]string{{stranger, g.Nodes[0].Addr()}, {stranger}} {
			c, err := config.Dial(config.Options{Addresses: addrs, Local: local, Timeout: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, created := c.Topics().Create(t.Context(), &config.Topic{Name: "t"}, nil)
			if errdefs.ClassOf(created) == errdefs.AlreadyExists {
				created = nil
			}
			_, got := c.Topics().Get(t.Context(), "t")
			for _, err := range []error{created, got} {
				alone := len(addrs) == 1
				if !alone && err != nil || alone && (errdefs.ClassOf(err) != errdefs.Unimplemented || errdefs.As(err).Meta["address"] != stranger) {
					t.Errorf("%v, local %v: got %v", addrs, local, err)
				}
			}
			if time.Since(began) > 15*time.Second {
				t.Error("waited for another service to become config sync")
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
