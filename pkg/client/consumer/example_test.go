package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/client/consumer"
)

// A service that bills orders until SIGTERM, and goes on where it was when it is started again.
func Example() {
	bill := func(context.Context, []byte) error { return nil }
	run := func() (err error) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		storages, err := client.Dial(ctx, client.Options{Addresses: []string{"10.0.0.1:10911", "10.0.0.2:10911"}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, storages.Close()) }()
		configs, err := config.Dial(config.Options{Addresses: []string{"10.0.0.1:10921", "10.0.0.2:10921"}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, configs.Close()) }()
		c, err := consumer.New(storages.Reader(), configs.Offsets(), consumer.Options{
			Group: "billing", Topic: "orders",
			Each: func(ctx context.Context, m *consumer.Message) error {
				if err := bill(ctx, m.GetMessage().GetBody()); err != nil {
					return fmt.Errorf("bill %s: %w", m.GetOffsetMessageId(), err) // ends Run; the message comes again at the next start
				}
				return nil
			},
		})
		if err != nil {
			return err
		}
		return c.Run(ctx)
	}
	if err := run(); err != nil {
		slog.Error("billing has ended", "error", err)
	}
}
