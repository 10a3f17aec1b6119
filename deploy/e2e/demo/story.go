package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"

	"github.com/tandemlog/tandem/pkg/sleep"
)

// story is the demo's state from act to act.
type story struct {
	cluster *cluster
	golden  string // the unpacked archive: what RocketMQ wrote, never changed
	taken   int64  // end of RocketMQ's part of the log
	end     int64  // end of the log at the end
	sent    *book
	leads   string // the master: a storage's name
	reader  *consumer
}

func (s *story) takeOver(ctx context.Context) error {
	dir := s.cluster.folder("master")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(s.golden, "master"))); err != nil {
		return err
	}
	for _, n := range s.cluster.names {
		if err := s.cluster.start(n, configOf(n)); err != nil {
			return err
		}
	}
	var files int64
	err := s.cluster.await(ctx, "master", "opening", func(st *storagev1.StatusResponse) bool {
		if e := st.GetEpochs(); len(e) > 0 {
			s.taken, files = e[len(e)-1].GetStartOffset(), st.GetFileSize()
		}
		return st.GetOpen()
	})
	if err != nil {
		return err
	}
	say("master %s took over RocketMQ's folder: %s in files of %s", s.cluster.addr("master"), size(s.taken), size(files))
	say("slaves  %s and %s start empty", s.cluster.addr("slave1"), s.cluster.addr("slave2"))
	return s.takeOverTables(ctx)
}

func (s *story) transfer(ctx context.Context) error {
	step("The slaves fetch it over the raw 8+4+x protocol")
	for _, n := range s.cluster.names[1:] {
		err := s.cluster.await(ctx, n, "catching up", func(st *storagev1.StatusResponse) bool {
			at := st.GetWatermarks().GetWrittenOffset()
			redraw("   %-7s %s %10s", n, bar(at, s.taken), size(at))
			return at >= s.taken && st.GetUpstream().GetState() == storagev1.LinkState_LINK_STATE_IN_SYNC
		})
		if err != nil {
			return err
		}
		st, err := s.cluster.admin(n).Status(ctx, &storagev1.StatusRequest{})
		if err != nil {
			return err
		}
		took := max(st.GetUpstream().GetLastReceive().AsTime().Sub(st.GetUpstream().GetConnectedAt().AsTime()), time.Millisecond)
		redraw("   %-7s %s %10s in %v, %s/s\n", n, bar(s.taken, s.taken), size(s.taken), took.Round(time.Millisecond),
			size(int64(float64(s.taken)/took.Seconds())))
	}
	return nil
}

// phase is how long the load runs before, during and after an absence.
const phase = time.Second

func (s *story) killSlaves(ctx context.Context) error {
	step("Synchronous puts while each slave in turn is killed with -9")
	ld := startLoad(ctx, s.cluster.message("master"), s.sent)
	defer ld.stop()
	if err := s.during(ctx, "both slaves there"); err != nil {
		return err
	}
	for _, n := range s.cluster.names[1:] {
		if err := s.cluster.kill(n); err != nil {
			return err
		}
		if err := s.during(ctx, n+" is dead"); err != nil {
			return err
		}
		if err := s.cluster.start(n); err != nil {
			return err
		}
		if err := s.inSync(ctx, 2); err != nil {
			return err
		}
		if err := s.during(ctx, n+" is back"); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) killMaster(ctx context.Context) error {
	step("The master is killed with -9 and restarted")
	ld := startLoad(ctx, s.cluster.message("master"), s.sent)
	defer ld.stop()
	if err := s.during(ctx, "before"); err != nil {
		return err
	}
	if err := s.cluster.kill("master"); err != nil {
		return err
	}
	if err := s.during(ctx, "the master is dead"); err != nil {
		return err
	}
	began := time.Now()
	if err := s.cluster.start("master"); err != nil {
		return err
	}
	var epoch int64
	err := s.cluster.await(ctx, "master", "opening again", func(st *storagev1.StatusResponse) bool {
		if e := st.GetEpochs(); len(e) > 0 {
			epoch = e[len(e)-1].GetEpoch()
		}
		return st.GetOpen()
	})
	if err != nil {
		return err
	}
	say("open again after %v: it heard its peers, took the best log and began epoch %d", time.Since(began).Round(time.Millisecond), epoch)
	if err := s.inSync(ctx, 2); err != nil {
		return err
	}
	return s.during(ctx, "after")
}

func (s *story) during(ctx context.Context, what string) error {
	if !sleep.For(ctx, phase) {
		return ctx.Err()
	}
	say("%-20s %s", what+":", s.sent.takeStatuses())
	return nil
}

func (s *story) inSync(ctx context.Context, slaves int32) error {
	return s.cluster.await(ctx, s.leads, fmt.Sprintf("%d slaves in sync", slaves), func(st *storagev1.StatusResponse) bool {
		return st.GetInSyncSlaves() >= slaves
	})
}

func (s *story) readFromSlave(ctx context.Context) error {
	step("A reader on slave2 sees every acknowledged message once")
	st, err := s.cluster.admin(s.leads).Status(ctx, &storagev1.StatusRequest{})
	if err != nil {
		return err
	}
	s.end = st.GetWatermarks().GetWrittenOffset()
	for _, n := range s.cluster.names {
		err := s.cluster.await(ctx, n, "having it all", func(st *storagev1.StatusResponse) bool {
			w := st.GetWatermarks()
			return w.GetWrittenOffset() >= s.end && w.GetDispatchedOffset() >= s.end
		})
		if err != nil {
			return err
		}
	}
	seen, err := s.readAll(ctx, "slave2")
	if err != nil {
		return err
	}
	for n, r := range s.sent.ok {
		at, ok := seen[n]
		if !ok || len(at) != 1 || at[0] != r.GetOffset() {
			return fmt.Errorf("message %d was acknowledged at offset %d, slave2 shows it at %v", n, r.GetOffset(), at)
		}
	}
	for n := range seen {
		if s.sent.ok[n] == nil && !s.sent.unknown[n] {
			return fmt.Errorf("slave2 shows message %d, which nobody sent", n)
		}
	}
	say("%d acknowledged, all there; %d more that were not answered PUT_OK", len(s.sent.ok), len(seen)-len(s.sent.ok))
	return nil
}

// readAll reads the demo's topic from one node and returns the offsets of each message number.
func (s *story) readAll(ctx context.Context, node string) (map[int][]int64, error) {
	c := s.cluster.message(node)
	qs, err := c.ListQueues(ctx, &storagev1.ListQueuesRequest{Topic: topic})
	if err != nil {
		return nil, err
	}
	seen := map[int][]int64{}
	for _, q := range qs.GetQueues() {
		for at := q.GetMinQueueOffset(); at < q.GetMaxQueueOffset(); {
			r, err := c.Get(ctx, &storagev1.GetRequest{Topic: topic, QueueId: q.GetQueueId(), QueueOffset: at, MaxMessages: 1024, MaxBytes: 1 << 20})
			if err != nil {
				return nil, err
			}
			for i, m := range r.GetMessages() {
				if m.GetQueueOffset() != at+int64(i) {
					return nil, fmt.Errorf("queue %d shows queue offset %d where %d is due", q.GetQueueId(), m.GetQueueOffset(), at+int64(i))
				}
				n, err := messageNumber(m.GetMessage().GetBody())
				if err != nil {
					return nil, fmt.Errorf("offset %d: %w", m.GetOffset(), err)
				}
				seen[n] = append(seen[n], m.GetOffset())
			}
			if r.GetNextQueueOffset() <= at {
				return nil, fmt.Errorf("queue %d of %s does not go on at %d: %v", q.GetQueueId(), node, at, r.GetStatus())
			}
			at = r.GetNextQueueOffset()
		}
	}
	return seen, nil
}

func (s *story) verify(ctx context.Context) error {
	step("Proof")
	want, err := s.checksums(ctx, "master")
	if err != nil {
		return err
	}
	for _, n := range s.cluster.names[1:] {
		have, err := s.checksums(ctx, n)
		if err != nil {
			return err
		}
		if !slices.Equal(have, want) {
			return fmt.Errorf("the checksums of %s differ from the master's", n)
		}
	}
	say("checksums of all three logs, 64 KiB stretches: equal up to %d", s.end)
	for _, n := range s.cluster.names {
		if _, err := s.cluster.admin(n).FlushNow(ctx, &storagev1.FlushNowRequest{}); err != nil {
			return err
		}
	}
	rmq, err := logBytes(filepath.Join(s.golden, "master"), s.taken)
	if err != nil {
		return err
	}
	first, err := logBytes(s.cluster.folder("master"), s.end)
	if err != nil {
		return err
	}
	for _, n := range s.cluster.names[1:] {
		b, err := logBytes(s.cluster.folder(n), s.end)
		if err != nil {
			return err
		}
		if !bytes.Equal(b, first) {
			return fmt.Errorf("the files of %s differ from the master's", n)
		}
	}
	if !bytes.Equal(first[:s.taken], rmq) {
		return fmt.Errorf("the first %d bytes are no longer what RocketMQ wrote", s.taken)
	}
	say("files of all three logs: the same %d bytes; the first %d are RocketMQ's own", s.end, s.taken)
	built, err := queueUnits(filepath.Join(s.golden, "slave"))
	if err != nil {
		return err
	}
	for _, n := range s.cluster.names[1:] {
		have, err := queueUnits(s.cluster.folder(n))
		if err != nil {
			return err
		}
		if err := beginWith(have, built); err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
	}
	say("%d queues of both slaves begin with what RocketMQ's own slave had built", len(built))
	return nil
}

func (s *story) checksums(ctx context.Context, node string) ([]uint32, error) {
	r, err := s.cluster.admin(node).Checksum(ctx, &storagev1.ChecksumRequest{ToOffset: s.end, StretchSize: 64 << 10})
	return r.GetChecksums(), err
}
