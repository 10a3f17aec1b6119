package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// tableFiles are RocketMQ's.
var tableFiles = []string{"topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"}

func (s *story) takeOverTables(ctx context.Context) error {
	return s.cluster.awaitConfig(ctx, configOf("master"), "opening", func(st *configsyncv1.StatusResponse) bool {
		if st.GetOpen() {
			entries := map[configsyncv1.Kind]int64{}
			for _, k := range st.GetKinds() {
				entries[k.GetKind()] = k.GetVersion().GetEntries()
			}
			say("config sync beside each: the master's has RocketMQ's %d topics, %d groups and offsets of %d topic@group pairs",
				entries[configsyncv1.Kind_KIND_TOPICS], entries[configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS], entries[configsyncv1.Kind_KIND_CONSUMER_OFFSETS])
		}
		return st.GetOpen()
	})
}

// changeMaster has a consumer group go on at its committed offsets on the node that becomes master.
func (s *story) changeMaster(ctx context.Context) error {
	step("The master's machine dies, a slave is promoted, and a consumer goes on where it stood")
	if err := s.consumeHalf(ctx); err != nil {
		return err
	}
	if err := s.cluster.kill("master", configOf("master")); err != nil {
		return err
	}
	began := time.Now()
	p, err := await(ctx, "promote slave1", func(ctx context.Context) (*storagev1.PromoteResponse, error) {
		return s.cluster.admin("slave1").Promote(ctx, &storagev1.PromoteRequest{})
	}, func(*storagev1.PromoteResponse) bool { return true })
	if err != nil {
		return err
	}
	s.leads = "slave1"
	if err := s.cluster.await(ctx, s.leads, "opening", (*storagev1.StatusResponse).GetOpen); err != nil {
		return err
	}
	if err := s.cluster.awaitConfig(ctx, configOf(s.leads), "opening", (*configsyncv1.StatusResponse).GetOpen); err != nil {
		return err
	}
	say("the master is dead; slave1 is promoted, log and tables are open in epoch %d after %v", p.GetEpoch(), time.Since(began).Round(time.Millisecond))
	at, err := s.reader.committed(ctx, s.leads)
	if err != nil {
		return err
	}
	if !maps.Equal(at, s.reader.at) {
		return fmt.Errorf("the group had committed %v, slave1 knows %v", s.reader.at, at)
	}
	s.reader.at = at
	ld := startLoad(ctx, s.cluster.message(s.leads), s.sent)
	err = s.during(ctx, "slave1 is master")
	ld.stop()
	if err != nil {
		return err
	}
	err = s.cluster.await(ctx, s.leads, "having it all in its queues", func(st *storagev1.StatusResponse) bool {
		return st.GetWatermarks().GetDispatchedOffset() >= st.GetWatermarks().GetWrittenOffset()
	})
	if err != nil {
		return err
	}
	n, err := s.reader.consume(ctx, s.leads, all)
	if err != nil {
		return err
	}
	say("the consumer goes on at its offsets in %d queues of slave1 and reads the other %d", len(s.reader.at), n)
	if err := s.readOnce(); err != nil {
		return err
	}
	return s.bringBack(ctx)
}

// consumeHalf has the consumer read half of all messages from the master, and waits until the slaves know how far it is.
func (s *story) consumeHalf(ctx context.Context) error {
	n, err := s.reader.consume(ctx, s.leads, half)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, side := range s.cluster.names {
		_, err := await(ctx, configOf(side)+": the offsets", func(ctx context.Context) (offsets, error) { return s.reader.committed(ctx, side) },
			func(at offsets) bool { return maps.Equal(at, s.reader.at) })
		if err != nil {
			return err
		}
	}
	say("%s reads %d messages from the master and commits; both slaves know its offsets after %v", readers, n, time.Since(began).Round(time.Millisecond))
	return nil
}

// bringBack starts the old master, which follows.
func (s *story) bringBack(ctx context.Context) error {
	if err := s.cluster.start("master", configOf("master")); err != nil {
		return err
	}
	if err := s.inSync(ctx, 2); err != nil {
		return err
	}
	say("the old master is back and follows slave1")
	return nil
}

// readOnce: the consumer got each acknowledged message once, and nothing twice.
func (s *story) readOnce() error {
	for n, times := range s.reader.read {
		if times != 1 {
			return fmt.Errorf("the consumer got message %d %d times", n, times)
		}
	}
	for n := range s.sent.ok {
		if s.reader.read[n] == 0 {
			return fmt.Errorf("the consumer did not get message %d, which was acknowledged", n)
		}
	}
	say("of its two halves no message is missing and none came twice")
	return nil
}

// verifyTables compares the four files on all nodes.
func (s *story) verifyTables(ctx context.Context) error {
	want, err := s.versions(ctx, configOf(s.leads))
	if err != nil {
		return err
	}
	for _, n := range s.cluster.configs {
		err := s.cluster.awaitConfig(ctx, n, "having the tables", func(st *configsyncv1.StatusResponse) bool { return maps.Equal(sums(st), want) })
		if err != nil {
			return err
		}
	}
	if err := s.cluster.stop(s.cluster.configs...); err != nil {
		return err
	}
	var total int
	for _, file := range tableFiles {
		first, err := os.ReadFile(filepath.Join(s.cluster.folder(s.leads), "config", file))
		if err != nil {
			return err
		}
		total += len(first)
		for _, n := range s.cluster.names {
			b, err := os.ReadFile(filepath.Join(s.cluster.folder(n), "config", file))
			if err == nil && !bytes.Equal(b, first) {
				err = fmt.Errorf("%s of %s differs from that of %s", file, n, s.leads)
			}
			if err != nil {
				return err
			}
		}
	}
	say("topics.json, consumerOffset.json, delayOffset.json, subscriptionGroup.json on all three: the same %s", size(int64(total)))
	return nil
}

func (s *story) versions(ctx context.Context, node string) (map[configsyncv1.Kind]uint64, error) {
	st, err := configsyncv1.NewConfigAdminServiceClient(s.cluster.conns[node]).Status(ctx, &configsyncv1.StatusRequest{})
	return sums(st), err
}

// sums are hashes of the tables' contents.
func sums(st *configsyncv1.StatusResponse) map[configsyncv1.Kind]uint64 {
	out := map[configsyncv1.Kind]uint64{}
	for _, k := range st.GetKinds() {
		out[k.GetKind()] = k.GetVersion().GetSum()
	}
	return out
}
