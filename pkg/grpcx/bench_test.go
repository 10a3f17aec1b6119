package grpcx_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/tandemlog/tandem/pkg/grpcx"
)

// BenchmarkUnary compares a call through this package (telemetry off) with one through bare gRPC.
func BenchmarkUnary(b *testing.B) {
	run := func(b *testing.B, client pb.TestServiceClient) {
		b.Helper()
		b.SetParallelism(32)
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			req := payload(200)
			for p.Next() {
				if _, err := client.UnaryCall(context.Background(), req); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		ln := listen(b)
		s := grpc.NewServer()
		pb.RegisterTestServiceServer(s, &service{})
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		conn, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		run(b, pb.NewTestServiceClient(conn))
		_ = conn.Close()
		s.Stop()
		<-served
	})
	b.Run("grpcx", func(b *testing.B) {
		f := start(b, grpcx.ServerOptions{}, &service{}, listen(b))
		client, _ := f.dial(b, grpcx.ClientOptions{})
		run(b, client)
	})
}
