package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tandemlog/tandem/deploy/e2e/faults"
	"github.com/tandemlog/tandem/deploy/e2e/rocketmq"
)

// rocketVersion is the RocketMQ that the product stands beside.
const rocketVersion = "5.3.3"

// rocket is a name server, a sync master, its slave, and RocketMQ's own client.
type rocket struct {
	names, master, slave, client *child
	load                         *rocketmq.Told
}

// jvm lets the JVMs be what they are by themselves, with as much memory as they need.
var jvm = []string{"-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:-UsePerfData"}

// rocketPair starts RocketMQ for the whole run and works it until its code is compiled.
func (r *rig) rocketPair(ctx context.Context) (*rocket, error) {
	if r.rocket != nil {
		return r.rocket, nil
	}
	q := new(rocket)
	r.rocket = q
	port, err := r.ports.Take(1)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.mem, "rocketmq")
	cmd, err := r.rocketmq.NameServer(filepath.Join(dir, "namesrv"), port, jvm)
	if err != nil {
		return nil, err
	}
	if q.names, err = r.start("namesrv", cmd); err != nil {
		return nil, err
	}
	if err := q.names.printed(ctx, rocketmq.Ready); err != nil {
		return nil, err
	}
	// In 5.x a sync master waits for no slave unless it is told that the master and one more are required.
	if q.master, err = r.broker(ctx, dir, "broker", faults.Loopback(port), "brokerId=0", "brokerRole=SYNC_MASTER", "inSyncReplicas=2"); err != nil {
		return nil, err
	}
	if q.slave, err = r.broker(ctx, dir, "broker-slave", faults.Loopback(port), "brokerId=1", "brokerRole=SLAVE"); err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "client")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	cmd = r.rocketmq.Load(home, jvm, faults.Loopback(port))
	q.load, err = rocketmq.Connect(ctx, cmd, func() (err error) {
		q.client, err = r.start("rocketmq-client", cmd)
		return err
	})
	if err != nil {
		return nil, err
	}
	return q, q.warm(ctx)
}

// broker starts one with the defaults of RocketMQ's, but for what a busy machine would make it refuse.
func (r *rig) broker(ctx context.Context, dir, name, nameServer string, more ...string) (*child, error) {
	port, err := r.ports.Take(rocketmq.BrokerPorts)
	if err != nil {
		return nil, err
	}
	cmd, err := r.rocketmq.Broker(filepath.Join(dir, name), filepath.Join(dir, name, "store"), port, jvm, append(more,
		"namesrvAddr="+nameServer, fmt.Sprintf("mappedFileSizeCommitLog=%d", putFile), "timerWheelEnable=false",
		"osPageCacheBusyTimeOutMills=20000", "waitTimeMillsInSendQueue=15000", "diskMaxUsedSpaceRatio=95")...)
	if err != nil {
		return nil, err
	}
	c, err := r.start(name, cmd)
	if err != nil {
		return nil, err
	}
	return c, c.printed(ctx, rocketmq.Ready)
}

// warm waits for the slave, which asks for its master every 10 s, and lets the JVMs compile.
func (q *rocket) warm(ctx context.Context) error {
	status := ""
	err := q.client.await(ctx, "RocketMQ's slave", func() (_ bool, err error) {
		status, _, err = q.load.Ask(ctx, "ready")
		return status == "SEND_OK", err
	})
	if err != nil {
		return fmt.Errorf("%w; the last message was answered %q", err, status)
	}
	const compile = 5 * time.Second
	for _, threads := range []int{64, 1} {
		if _, err := q.put(ctx, threads, compile); err != nil {
			return err
		}
	}
	return nil
}

func (q *rocket) end() {
	if q != nil {
		for _, c := range []*child{q.client, q.slave, q.master, q.names} {
			c.end()
		}
	}
}

func (q *rocket) put(ctx context.Context, callers int, d time.Duration) (answer, error) {
	got, _, err := q.load.Ask(ctx, "load %d %d %d", callers, d.Milliseconds(), bodySize)
	if err != nil {
		return answer{}, err
	}
	var n, p50, p99 float64
	if _, err := fmt.Sscan(got, &n, &p50, &p99); err != nil {
		return answer{}, fmt.Errorf("RocketMQ's client answers %q: %w", got, err)
	}
	return rated(n, d, p50, p99), nil
}

// rocketPut measures sends of 200 bytes by threads of RocketMQ's own client.
func rocketPut(callers int) func(context.Context, *rig, string) (map[string]float64, error) {
	return func(ctx context.Context, r *rig, name string) (map[string]float64, error) {
		q, err := r.rocketPair(ctx)
		if err != nil {
			return nil, err
		}
		var a answer
		all := map[string]process{"client": q.client, "master": q.master, "slave": q.slave}
		cpu, err := r.watched(name, all, func() error {
			a, err = q.put(ctx, callers, r.time)
			return err
		})
		return withCPU(a, cpu), err
	}
}
