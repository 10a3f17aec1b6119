package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// tables measures a verb of the helper's on a table of so many topics.
func tables(topics int, verb string, count int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		w, err := r.topics(ctx, topics)
		if err != nil {
			return nil, err
		}
		var a answer
		cpu, err := r.watched(name, map[string]process{"helper": w}, func() (err error) {
			a, err = w.do("%s count=%d", verb, count)
			return err
		})
		return withCPU(a, cpu), err
	}
}

// topics returns the helper with a table of so many topics, which it makes at first.
func (r *rig) topics(ctx context.Context, count int) (*worker, error) {
	if w := r.tables[count]; w != nil {
		return w, nil
	}
	bin, err := r.built(ctx, "configsync/internal/benchmark")
	if err != nil {
		return nil, err
	}
	w, err := startWorker(ctx, bin)
	if err != nil {
		return nil, err
	}
	r.tables[count] = w
	r.workers++
	_, err = w.do("open dir=%s topics=%d", filepath.Join(r.mem, fmt.Sprint(r.workers)), count)
	return w, err
}

// built builds a program of services/ at its first use.
func (r *rig) built(ctx context.Context, program string) (string, error) {
	if r.programs[program] == "" {
		dir, err := os.MkdirTemp(r.disk, "bin-")
		if err != nil {
			return "", err
		}
		bin, err := build(ctx, dir, program)
		if err != nil {
			return "", err
		}
		r.programs[program] = bin
	}
	return r.programs[program], nil
}

// configNode is a config sync service as users run it, and a connection to it.
type configNode struct {
	*child
	addr string
	conn *grpc.ClientConn
}

// dialNode connects as this product's clients do.
func dialNode(addr string) (*grpc.ClientConn, error) {
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{})
	if err != nil {
		return nil, err
	}
	return dialer.Dial(addr)
}

// configNode starts a node on a folder with these lines of configuration besides those that all have.
func (r *rig) configNode(ctx context.Context, name, dir, addr string, more ...string) (*configNode, error) {
	bin, err := r.built(ctx, "configsync")
	if err != nil {
		return nil, err
	}
	port, err := r.ports.Take(1)
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf("storePathRootDir: %s\nlisten: %s\ntelemetry: {debugListen: %q}\n", dir, addr, faults.Loopback(port))
	for _, line := range more {
		text += line + "\n"
	}
	if err := os.WriteFile(dir+".yaml", []byte(text), 0o600); err != nil {
		return nil, err
	}
	conn, err := dialNode(addr)
	if err != nil {
		return nil, err
	}
	c, err := r.start(name, exec.Command(bin, "-config", dir+".yaml")) //nolint:noctx // the rig ends it
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.debug = faults.Loopback(port)
	return &configNode{c, addr, conn}, nil
}

// status waits until a node's Status is as wanted.
func (n *configNode) status(ctx context.Context, what string, ok func(*configsyncv1.StatusResponse) bool) error {
	admin := configsyncv1.NewConfigAdminServiceClient(n.conn)
	return n.await(ctx, what, func() (bool, error) {
		st, err := admin.Status(ctx, &configsyncv1.StatusRequest{})
		return err == nil && ok(st), nil // it starts
	})
}

func (n *configNode) end() {
	if n != nil {
		_ = n.conn.Close() // nothing is under way
		n.child.end()
	}
}

// alone returns this round's node that leads without slaves.
func (r *rig) alone(ctx context.Context) (*configNode, error) {
	if r.config != nil {
		return r.config, nil
	}
	port, err := r.ports.Take(1)
	if err != nil {
		return nil, err
	}
	r.workers++
	if r.config, err = r.configNode(ctx, "configsync", filepath.Join(r.mem, fmt.Sprint(r.workers)), faults.Loopback(port)); err != nil {
		return nil, err
	}
	return r.config, r.config.status(ctx, "opening", func(st *configsyncv1.StatusResponse) bool { return st.GetOpen() })
}

// progress is the next commit of a consumer: each goes on in queues of its own.
func progress(consumer int, done int64) *configsyncv1.ConsumerOffset {
	return &configsyncv1.ConsumerOffset{
		Topic: topic, Group: fmt.Sprintf("some-group-name-%03d", consumer), QueueId: int32(done % 8), Offset: done, //nolint:gosec // below 8
	}
}

// commitEach measures commits by callers that make a call for each.
func commitEach(ctx context.Context, r *rig, name string) (map[string]float64, error) {
	n, err := r.alone(ctx)
	if err != nil {
		return nil, err
	}
	return r.commits(ctx, name, n.child, n.conn)
}

// noopCommits measures the same calls where they do nothing.
func noopCommits(ctx context.Context, r *rig, name string) (_ map[string]float64, err error) {
	s, addr, err := r.noop()
	if err != nil {
		return nil, err
	}
	defer s.end()
	conn, err := dialNode(addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	client := configsyncv1.NewOffsetServiceClient(conn)
	err = s.await(ctx, "the server of no-op calls", func() (bool, error) {
		_, err := client.Commit(ctx, &configsyncv1.CommitRequest{Offset: progress(0, 0)})
		return err == nil, nil // it starts
	})
	if err != nil {
		return nil, err
	}
	return r.commits(ctx, name, s, conn)
}

func (r *rig) commits(ctx context.Context, name string, server *child, conn *grpc.ClientConn) (map[string]float64, error) {
	client := configsyncv1.NewOffsetServiceClient(conn)
	var a answer
	cpu, err := r.watched(name, map[string]process{"client": new(self), "server": server}, func() (err error) {
		a, err = closedLoop(64, r.time, func(i int) func() error {
			var done int64
			return func() error {
				done++
				_, err := client.Commit(ctx, &configsyncv1.CommitRequest{Offset: progress(i, done)})
				return err
			}
		})
		return err
	})
	return withCPU(a, cpu), err
}

// commitBy measures commits over one stream with 512 requests under way, each with so many offsets.
func commitBy(offsets int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		n, err := r.alone(ctx)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := configsyncv1.NewOffsetServiceClient(n.conn).CommitStream(ctx)
		if err != nil {
			return nil, err
		}
		s := &commitStream{stream: stream}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.receive()
		}()
		var a answer
		var sequence uint64
		cpu, err := r.watched(name, map[string]process{"client": new(self), "server": n.child}, func() (err error) {
			a, err = window(512, r.time, func(done func(error)) error {
				sequence++
				req := &configsyncv1.CommitStreamRequest{Sequence: sequence}
				for i := range offsets {
					req.Offsets = append(req.Offsets, progress(i, int64(sequence))) //nolint:gosec // small
				}
				if err := s.expect(done); err != nil {
					return err
				}
				return stream.Send(req)
			})
			return err
		})
		cancel()
		<-ended
		return withCPU(a, cpu), err
	}
}

// commitStream ends what was sent when it is answered.
type commitStream struct {
	stream grpc.BidiStreamingClient[configsyncv1.CommitStreamRequest, configsyncv1.CommitStreamResponse]

	mu       sync.Mutex
	pending  []func(error)
	answered uint64
	failed   error
}

func (s *commitStream) expect(done func(error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, done)
	return s.failed
}

func (s *commitStream) receive() {
	for {
		resp, err := s.stream.Recv()
		if err == nil && len(resp.GetFailures()) > 0 {
			err = fmt.Errorf("a commit is refused: %v", resp.GetFailures()[0])
		}
		s.mu.Lock()
		var done []func(error)
		if err != nil {
			done, s.pending, s.failed = s.pending, nil, err
		} else {
			n := resp.GetSequence() - s.answered
			done, s.pending, s.answered = s.pending[:n], s.pending[n:], resp.GetSequence()
		}
		s.mu.Unlock()
		for _, f := range done {
			f(err)
		}
		if err != nil {
			return
		}
	}
}
