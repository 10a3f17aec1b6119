package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/ballast"
	"github.com/tandemlog/tandem/pkg/telemetry"
)

// noopVerb, before an address, makes this program the server of calls that do nothing.
const noopVerb = "serve-noop"

// noop answers each put at once.
type noop struct {
	storagev1.UnimplementedMessageServiceServer
}

var nothing = &storagev1.PutResponse{Result: &storagev1.PutResult{Status: client.StatusOK}}

// Put implements MessageService.
func (noop) Put(context.Context, *storagev1.PutRequest) (*storagev1.PutResponse, error) {
	return nothing, nil
}

// noopOffsets answers each commit at once.
type noopOffsets struct {
	configsyncv1.UnimplementedOffsetServiceServer
}

// Commit implements OffsetService.
func (noopOffsets) Commit(context.Context, *configsyncv1.CommitRequest) (*configsyncv1.CommitResponse, error) {
	return &configsyncv1.CommitResponse{}, nil
}

// serveNoop serves at addr with the interceptors, the telemetry and the ballast that a service has by default.
func serveNoop(ctx context.Context, addr string) error {
	defer ballast.Hold()()
	settings := service.Defaults("")
	tel, err := telemetry.Open(ctx, "noop", "", settings.Telemetry)
	if err != nil {
		return err
	}
	s, err := grpcx.NewServer(grpcx.ServerOptions{
		Log: tel.Logger, SlowCall: -1,
		Providers: grpcx.Providers{TracerProvider: tel.TracerProvider, MeterProvider: tel.MeterProvider},
	})
	if err != nil {
		return err
	}
	storagev1.RegisterMessageServiceServer(s, noop{})
	configsyncv1.RegisterOffsetServiceServer(s, noopOffsets{})
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return s.Serve(ctx, ln)
}

// noop starts the server of calls that do nothing.
func (r *rig) noop() (*child, string, error) {
	port, err := r.ports.Take(1)
	if err != nil {
		return nil, "", err
	}
	bin, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	s, err := r.start("noop", exec.Command(bin, noopVerb, faults.Loopback(port))) //nolint:noctx // the caller ends it
	return s, faults.Loopback(port), err
}

// noopCalls measures unary puts that do nothing, through the same client.
func noopCalls(callers int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (_ map[string]float64, err error) {
		s, addr, err := r.noop()
		if err != nil {
			return nil, err
		}
		defer s.end()
		c, err := client.Dial(ctx, client.Options{Addresses: []string{addr}})
		if err != nil {
			return nil, err
		}
		defer c.Close() //nolint:errcheck // nothing is under way
		producer := c.Producer(client.ProducerOptions{})
		err = s.await(ctx, "the server of no-op calls", func() (bool, error) {
			_, err := producer.Put(ctx, &client.Message{Topic: topic, Body: make([]byte, bodySize)})
			return err == nil, nil // it starts
		})
		if err != nil {
			return nil, err
		}
		var a answer
		cpu, err := r.watched(name, map[string]process{"client": new(self), "server": s}, func() error {
			a, err = putEach(ctx, c, callers, r.time)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("no-op calls: %w", err)
		}
		return withCPU(a, cpu), nil
	}
}
