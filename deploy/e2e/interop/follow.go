package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
)

// follow is the story of scenarios a and b: a RocketMQ master, its own slave beside it, and Tandem as a second slave.
type follow struct {
	*stage
	q          *rocketmq.RocketMQ
	nameServer string
	client     *rocketClient
	master     *broker
	log        *walker // the master's
	slave      *broker
	tandem     *node
}

// Bytes that the log must hold before the slaves join, and that it must grow by while Tandem is dead: more than a file each.
const (
	historySize = 1 << 20
	absenceSize = 300 << 10
)

func followVersion(version string) func(context.Context, *stage) (string, error) {
	return func(ctx context.Context, s *stage) (string, error) {
		q, err := s.rocketmq(ctx, version)
		if err != nil {
			return "", err
		}
		f := &follow{stage: s, q: q}
		for _, act := range []func(context.Context) error{f.begin, f.join, f.crash, f.settle, f.alone, f.end} {
			if err := act(ctx); err != nil {
				return "", err
			}
		}
		return f.compare()
	}
}

// begin starts a master under load and waits until it has a history.
func (f *follow) begin(ctx context.Context) (err error) {
	if _, f.nameServer, err = f.stage.nameServer(ctx, f.q); err != nil {
		return err
	}
	f.master, err = f.broker(ctx, f.q, "master", filepath.Join(f.dir, "master", "store"),
		"brokerId=0", "brokerRole=SYNC_MASTER", "namesrvAddr="+f.nameServer)
	if err != nil {
		return err
	}
	if f.client, err = f.rocketClient(ctx, f.q, f.nameServer); err != nil {
		return err
	}
	if _, _, err := f.client.Ask(ctx, "load 2"); err != nil {
		return err
	}
	f.log = newWalker(f.master.store)
	if err := f.grown(ctx, historySize); err != nil {
		return err
	}
	say("master %s is under load by its own client; its log ends at %d", f.q.Version, f.log.at)
	return nil
}

// grown waits until the master's log is n bytes longer.
func (f *follow) grown(ctx context.Context, n int64) error {
	from, err := f.log.end()
	if err != nil {
		return err
	}
	return await(ctx, fmt.Sprintf("the load writing %d bytes", n), func() (bool, error) {
		end, err := f.log.end()
		return end >= from+n, err
	})
}

// join starts both slaves, empty, and waits until both follow.
func (f *follow) join(ctx context.Context) (err error) {
	joined, err := f.log.end()
	if err != nil {
		return err
	}
	f.tandem, err = f.stage.tandem(ctx, filepath.Join(f.dir, "tandem"),
		fileSizes, "brokerRole: SLAVE", "brokerId: 2", "master: {address: \""+f.master.haAddr+"\", legacy: true}")
	if err != nil {
		return err
	}
	settings := []string{"brokerId=1", "brokerRole=SLAVE", "namesrvAddr=" + f.nameServer}
	if f.q.Version == "4.9.7" { // 5.3.3 learns it from the name server, and only there
		settings = append(settings, "haMasterAddress="+f.master.haAddr)
	}
	f.slave, err = f.broker(ctx, f.q, "slave", filepath.Join(f.dir, "slave", "store"), settings...)
	if err != nil {
		return err
	}
	if err := f.caughtUp(ctx); err != nil {
		return err
	}
	say("Tandem joined empty at %d and has everything from 0 on", joined)
	if err := f.slaveFollows(ctx); err != nil {
		return err
	}
	names, err := logFiles(filepath.Join(f.slave.store, "commitlog"))
	if err != nil {
		return err
	}
	say("a RocketMQ slave joined beside it; its first file is %s", names[0])
	return nil
}

// caughtUp waits until Tandem has all that the master has now.
func (f *follow) caughtUp(ctx context.Context) error {
	end, err := f.log.end()
	if err != nil {
		return err
	}
	err = f.tandem.has(ctx, end)
	if err != nil {
		return err
	}
	return f.tandem.await(ctx, "being in sync", func(st *client.NodeStatus) bool {
		return st.GetUpstream().GetState() == storagev1.LinkState_LINK_STATE_IN_SYNC
	})
}

// slaveFollows waits until RocketMQ's slave has all that the master has now.
func (f *follow) slaveFollows(ctx context.Context) error {
	end, err := f.log.end()
	if err != nil {
		return err
	}
	w := newWalker(f.slave.store)
	return await(ctx, "RocketMQ's slave catching up", func() (bool, error) {
		at, err := w.end()
		return at >= end, err
	})
}

// crash kills Tandem twice, each time for longer than a log file takes.
func (f *follow) crash(ctx context.Context) error {
	for i := range 2 {
		if i == 1 { // once where it follows, once in the middle of catching up
			if err := f.tandem.await(ctx, "answering", func(*client.NodeStatus) bool { return true }); err != nil {
				return err
			}
		}
		if err := f.tandem.kill(); err != nil {
			return err
		}
		had := newWalker(f.tandem.store)
		at, err := had.end()
		if err != nil {
			return err
		}
		if err := f.grown(ctx, absenceSize); err != nil {
			return err
		}
		if err := f.tandem.start(); err != nil {
			return err
		}
		say("Tandem was killed with -9 at %d and is back at a master's end of %d", at, f.log.at)
	}
	began := time.Now()
	if err := f.caughtUp(ctx); err != nil {
		return err
	}
	say("it has caught up after %v", time.Since(began).Round(time.Millisecond))
	return nil
}

// settle ends the load and RocketMQ's slave.
func (f *follow) settle(ctx context.Context) error {
	statuses, _, err := f.client.Ask(ctx, "halt")
	if err != nil {
		return err
	}
	say("the load ends; its client was told %s", statuses)
	if strings.Contains(statuses, "FAILED") {
		return errors.New("some sends failed; see the client's log")
	}
	if err := f.slaveFollows(ctx); err != nil {
		return err
	}
	return f.slave.stop(ctx)
}

// alone shows that the master's sends wait for Tandem's reports when it is the only slave.
func (f *follow) alone(ctx context.Context) error {
	if strings.HasPrefix(f.q.Version, "5.") { // 4.x always waits for one slave, 5.x by default for none
		if _, _, err := f.client.Ask(ctx, "config %s inSyncReplicas 2", f.master.addr); err != nil {
			return err
		}
	}
	const n = 100
	if err := f.told(ctx, n, "SEND_OK"); err != nil {
		return err
	}
	err := f.tandem.frozen(ctx, func() error { return f.told(ctx, 1, "FLUSH_SLAVE_TIMEOUT") })
	if err != nil {
		return err
	}
	if err := f.told(ctx, n, "SEND_OK"); err != nil {
		return err
	}
	say("with Tandem as the only slave: SEND_OK=%d, FLUSH_SLAVE_TIMEOUT while it was stopped, then SEND_OK=%d", n, n)
	return nil
}

// told sends n messages by RocketMQ's client and checks the status of all.
func (f *follow) told(ctx context.Context, n int, status string) error {
	got, _, err := f.client.Ask(ctx, "send %d", n)
	if want := fmt.Sprintf("%s=%d", status, n); err == nil && got != want {
		err = fmt.Errorf("RocketMQ's client was told %s, due is %s", got, want)
	}
	return err
}

// quiet is how long the master must have written nothing: delayed messages and the notes of transactions come late.
const quiet = 6 * time.Second

// end waits until the master writes no more and stops both.
func (f *follow) end(ctx context.Context) error {
	last, since := int64(-1), time.Now()
	err := await(ctx, "the master falling silent", func() (bool, error) {
		end, err := f.log.end()
		if end != last {
			last, since = end, time.Now()
		}
		return time.Since(since) >= quiet, err
	})
	if err != nil {
		return err
	}
	if err := f.tandem.has(ctx, last); err != nil {
		return err
	}
	if err := f.master.stop(ctx); err != nil {
		return err
	}
	return f.tandem.stop(ctx)
}

func (f *follow) compare() (string, error) {
	all, err := sameStores(f.master.store, f.tandem.store)
	if err != nil {
		return "", err
	}
	say("Tandem's files are the master's: %v", all)
	part, err := partOf(f.slave.store, f.tandem.store)
	if err != nil {
		return "", err
	}
	say("RocketMQ's slave has %d to %d in %d log files, %d queue files, %d units (%d fillers): all as Tandem has them",
		part.from, part.end, part.logFiles, part.queueFiles, part.units, part.blank)
	if part.units < 100 {
		return "", errors.New("RocketMQ's slave has too little to prove anything")
	}
	return fmt.Sprintf("RocketMQ %s: %v, equal to the master's; equal to its own slave's from %d to %d (%d units)",
		f.q.Version, all, part.from, part.end, part.units), nil
}
