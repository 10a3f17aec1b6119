package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/client"
)

// mirror is the story of scenario f: a Tandem storage and config sync service follow a RocketMQ master that has a slave of its own.
func mirror(ctx context.Context, s *stage) (string, error) {
	q, err := s.rocketmq(ctx, "5.3.3")
	if err != nil {
		return "", err
	}
	f := &follow{stage: s, q: q}
	if err := f.begin(ctx); err != nil {
		return "", err
	}
	f.slave, err = f.broker(ctx, q, "slave", filepath.Join(s.dir, "slave", "store"), "brokerId=1", "brokerRole=SLAVE", "namesrvAddr="+f.nameServer)
	if err != nil {
		return "", err
	}
	f.tandem, err = s.tandem(ctx, filepath.Join(s.dir, "tandem"), fileSizes, "brokerRole: SLAVE", "brokerId: 2", "brokerClusterName: tandem",
		"master: {address: \""+f.master.haAddr+"\", legacy: true}")
	if err != nil {
		return "", err
	}
	config, err := s.configsync(f.tandem, func(string) []string {
		return []string{
			"brokerClusterName: tandem", "brokerId: 2", "brokerRole: SLAVE", "syncInterval: 2s",
			"master: {address: \"" + f.master.addr + "\", legacy: true}",
		}
	})
	if err != nil {
		return "", err
	}
	if err := f.consume(ctx); err != nil {
		return "", err
	}
	if err := f.caughtUp(ctx); err != nil {
		return "", err
	}
	all, err := sameTables(ctx, "Tandem's tables being the master's", f.master.store, f.tandem.store, nil)
	if err != nil {
		return "", err
	}
	say("Tandem's four files are the live master's (dataVersions aside): %s", all.count())
	if _, err := sameTables(ctx, "the RocketMQ slave's tables being Tandem's", f.tandem.store, f.slave.store, nil); err != nil {
		return "", err
	}
	say("and its RocketMQ slave's")
	for _, stop := range []func(context.Context) error{config.stop, f.tandem.stop} {
		if err := stop(ctx); err != nil {
			return "", err
		}
	}
	left, err := readTables(f.tandem.store)
	if err != nil {
		return "", err
	}
	if d := all.differs(left); d != "" {
		return "", fmt.Errorf("after Tandem's stop its files differ from the master's: %s", d)
	}
	return fmt.Sprintf("a Tandem pair followed a live RocketMQ %s master: log to its end, %s, as in the master's own files and its RocketMQ slave's", q.Version, all.count()), nil
}

// consume ends the load and consumes some of it by a group, which commits what it had.
func (f *follow) consume(ctx context.Context) error {
	if _, _, err := f.client.Ask(ctx, "halt"); err != nil {
		return err
	}
	_, got, err := f.client.Ask(ctx, "receive 300 Plain Keyed")
	if err != nil {
		return err
	}
	say("RocketMQ's consumer has taken %d messages", len(got))
	return f.tandem.await(ctx, "answering", func(*client.NodeStatus) bool { return true })
}
