package client_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/clienttest"
)

// storageForExample stands for storages that run somewhere.
func storageForExample() (addr string, stop func()) {
	s := clienttest.Start(exampleTB{}, clienttest.Options{})
	return s.Addr(), s.Stop
}

// exampleTB lets an Example use a test server.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()           {}
func (exampleTB) Cleanup(func())    {}
func (exampleTB) Fatal(args ...any) { log.Fatal(args...) }

func Example() {
	addr, stop := storageForExample()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Addresses: []string{addr}})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = c.Close() }()

	// One message, and where it is.
	result, err := c.Producer(client.ProducerOptions{}).Put(ctx, &client.Message{Topic: "orders", Body: []byte("first")})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(client.StatusName(result.GetStatus()), "at", result.GetOffset())

	// Many messages, in order, each with its own outcome.
	err = c.Producer(client.ProducerOptions{}).Stream(ctx, func(s *client.Sender) error {
		for _, body := range []string{"second", "third"} {
			_, err := s.Send(ctx, &client.Message{Topic: "orders", Body: []byte(body)}, func(o client.Outcome) {
				if o.Err == nil {
					fmt.Println(client.StatusName(o.Result.GetStatus()), "at", o.Result.GetOffset())
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Print(err)
		return
	}

	resp, err := c.Reader().Get(ctx, &client.GetRequest{Topic: "orders", QueueOffset: 1})
	if err != nil {
		log.Print(err)
		return
	}
	for _, m := range resp.GetMessages() {
		fmt.Printf("%d %s\n", m.GetQueueOffset(), m.GetMessage().GetBody())
	}
	// Output:
	// PUT_OK at 0
	// PUT_OK at 5
	// PUT_OK at 11
	// 1 second
	// 2 third
}
