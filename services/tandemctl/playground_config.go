package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/config"
)

// configNodeConfig is the part of a config sync node's configuration that the playground sets.
type configNodeConfig struct {
	BrokerClusterName string           `yaml:"brokerClusterName"`
	BrokerName        string           `yaml:"brokerName"`
	BrokerID          int              `yaml:"brokerId"`
	StorePathRootDir  string           `yaml:"storePathRootDir"`
	Listen            string           `yaml:"listen"`
	Peers             []string         `yaml:"peers"`
	Storage           addressSection   `yaml:"storage"`
	Telemetry         telemetrySection `yaml:"telemetry"`
}

// prepareConfigs makes a config sync node beside each storage, in its folder: the tables are where RocketMQ has them.
func (p *playground) prepareConfigs(ports []string) error {
	if p.configBin == "" {
		return nil
	}
	for i, n := range p.nodes {
		root := filepath.Dir(n.config)
		p.configs = append(p.configs, &playNode{
			name: n.name + "'s config sync", id: n.id, bin: p.configBin, dir: n.dir, config: filepath.Join(root, "configsync.yaml"),
			logFile: filepath.Join(root, "configsync.log"), listen: ports[2*i], debugListen: ports[2*i+1],
		})
	}
	for _, n := range p.configs {
		c := configNodeConfig{
			BrokerClusterName: "playground", BrokerName: "broker-a", BrokerID: n.id, StorePathRootDir: n.dir, Listen: n.listen,
			Peers: strings.Split(p.configAddresses(), ","), Storage: addressSection{p.nodes[n.id].listen},
			Telemetry: telemetrySection{DebugListen: n.debugListen},
		}
		b, err := yaml.Marshal(c)
		if err == nil {
			err = os.WriteFile(n.config, b, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write the configuration of %s: %w", n.name, err)
		}
	}
	return nil
}

func (p *playground) configAddresses() string {
	var all []string
	for _, n := range p.configs {
		all = append(all, n.listen)
	}
	return strings.Join(all, ",")
}

// awaitStorages waits until the storages are in sync, and then the tables.
func (p *playground) awaitStorages(ctx context.Context) error {
	if err := p.awaitSync(ctx); err != nil || len(p.configs) == 0 {
		return err
	}
	c, err := config.Dial(p.a.configOptions(strings.Split(p.configAddresses(), ",")...))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	return p.await(ctx, "not all tables were in sync in time", func(string) (string, error) {
		return tableProgress(p.a.configNodes(c).ask(ctx)), nil
	})
}

// tableProgress says what config sync is waiting for, or nothing.
func tableProgress(all []configNode) string {
	open := false
	for _, n := range all {
		if n.err != nil {
			return "not all config sync nodes answer yet"
		}
		open = open || n.status.GetOpen()
		for _, k := range n.status.GetKinds() {
			switch k.GetState() {
			case configsyncv1.SyncState_SYNC_STATE_LEADING, configsyncv1.SyncState_SYNC_STATE_IN_SYNC:
			default:
				return fmt.Sprintf("the table of %s is not in sync at %s yet", kindName(k.GetKind()), n.addr)
			}
		}
	}
	if !open {
		return "no config sync node leads yet"
	}
	return ""
}

// listConfigs prints the addresses of the config sync nodes.
func (p *playground) listConfigs(w io.Writer) {
	if len(p.configs) == 0 {
		return
	}
	rows := make([][]string, 0, len(p.configs))
	for i, n := range p.configs {
		rows = append(rows, []string{p.nodes[i].name, n.listen, n.debugListen, itoa(n.pid), filepath.Join(n.dir, "config")})
	}
	say(w)
	table(w, []string{"CONFIG SYNC OF", "GRPC", "DEBUG", "PID", "TABLES"}, rows)
}

// introduceConfigs prints what to try with them.
func (p *playground) introduceConfigs(w io.Writer) {
	if len(p.configs) == 0 {
		return
	}
	sayf(w, "\n  export %s=%s\n", configAddrVar, p.configAddresses())
	sayf(w, "  %[1]s topic create orders --queues 4\n  %[1]s put --topic orders hello\n"+
		"  %[1]s offset commit --group billing --topic orders --queue 0 --offset 0 --durable\n  %[1]s offset lag\n  %[1]s config status -w\n", p.a.name())
	if len(p.configs) > 1 {
		sayf(w, "  %s config diff %s %s\n", p.a.name(), p.configs[0].listen, p.configs[1].listen)
	}
	say(w)
}
