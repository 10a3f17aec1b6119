package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/pkg/grpcx"
)

// tableFields are a store's files of tables, and the field of each that has the entries.
var tableFields = map[string]string{
	"topics.json": "topicConfigTable", "consumerOffset.json": "offsetTable", "delayOffset.json": "offsetTable",
	"subscriptionGroup.json": "subscriptionGroupTable",
}

// tables are the entries of all files, by file.
type tables map[string]map[string]any

var integerKey = regexp.MustCompile(`([{,]\s*)(\d+)\s*:`)

// readTables reads the tables of a store. A file that is not there, or is just being written, has none.
func readTables(store string) (tables, error) {
	out := tables{}
	for file, field := range tableFields {
		text, err := os.ReadFile(filepath.Join(store, "config", file))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		dec := json.NewDecoder(bytes.NewReader(integerKey.ReplaceAll(text, []byte(`$1"$2":`))))
		dec.UseNumber()
		var whole map[string]json.RawMessage
		if dec.Decode(&whole) != nil {
			continue
		}
		table := map[string]any{}
		dec = json.NewDecoder(bytes.NewReader(whole[field]))
		dec.UseNumber()
		if err := dec.Decode(&table); err != nil {
			return nil, fmt.Errorf("%s of %s: %w", file, store, err)
		}
		out[file] = table
	}
	return out, nil
}

// count says how many entries there are.
func (t tables) count() string {
	var parts []string
	for _, file := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%d in %s", len(t[file]), file))
	}
	return strings.Join(parts, ", ")
}

// differs says where two stores' tables differ, or "".
func (t tables) differs(other tables) string {
	var out []string
	for file := range tableFields {
		for key := range t[file] {
			if !reflect.DeepEqual(t[file][key], other[file][key]) {
				out = append(out, fmt.Sprintf("%s, %s: %v and %v", file, key, t[file][key], other[file][key]))
			}
		}
		for key := range other[file] {
			if _, ok := t[file][key]; !ok {
				out = append(out, fmt.Sprintf("%s, %s: only in the second", file, key))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out[:min(len(out), 3)], "; ")
}

// newFields are those of a topic's or group's config that RocketMQ 4 does not know, and so does not write.
var newFields = []string{"attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy", "groupSysFlag"}

// without drops fields of configs.
func (t tables) without(fields []string) {
	for _, table := range t {
		for _, config := range table {
			if config, ok := config.(map[string]any); ok {
				for _, f := range fields {
					delete(config, f)
				}
			}
		}
	}
}

// sameTables waits until the tables of both stores are equal but for some fields, and none is empty, and returns them.
func sameTables(ctx context.Context, what, one, two string, but []string) (tables, error) {
	var a, b tables
	last := ""
	err := awaitFor(ctx, longPatience, what, func() (_ bool, err error) {
		if a, err = readTables(one); err != nil {
			return false, err
		}
		if b, err = readTables(two); err != nil {
			return false, err
		}
		for file := range tableFields {
			if len(a[file]) == 0 {
				last = file + " has nothing"
				return false, nil
			}
		}
		a.without(but)
		b.without(but)
		last = a.differs(b)
		return last == "", nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w; last difference: %s", err, last)
	}
	return a, nil
}

// configNode is a Tandem config sync service.
type configNode struct {
	*process
	addr, remoting string
	conn           *grpc.ClientConn
}

// configsync starts a config sync service beside a storage, on its folder, with these lines of configuration.
func (s *stage) configsync(n *node, lines func(remoting string) []string) (*configNode, error) {
	port, err := s.ports.Take(5) // its own, the debug port, RocketMQ's and the one two below it
	if err != nil {
		return nil, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	c := &configNode{addr: addr, remoting: fmt.Sprintf("127.0.0.1:%d", port+4)}
	text := fmt.Sprintf("storePathRootDir: %s\nlisten: %s\nstorage: {address: \"%s\"}\ntelemetry: {debugListen: \"127.0.0.1:%d\"}\n%s\n",
		n.store, addr, n.addr, port+1, strings.Join(lines(c.remoting), "\n"))
	config := filepath.Join(s.dir, "configsync.yaml")
	if err := write(config, strings.NewReader(text)); err != nil {
		return nil, err
	}
	dialer, err := grpcx.NewDialer(grpcx.ClientOptions{})
	if err != nil {
		return nil, err
	}
	if c.conn, err = dialer.Dial(addr); err != nil {
		return nil, err
	}
	c.process, err = s.start("configsync", exec.Command(filepath.Join(s.bin, "configsync"), "-config", config)) //nolint:noctx // the stage ends it
	return c, err
}

// stop ends the service as an operator does; it must exit with 0.
func (c *configNode) stop(ctx context.Context) error {
	if err := c.process.stop(ctx); err != nil {
		return err
	}
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("the config sync service exits with %d after SIGTERM", code)
	}
	return c.conn.Close()
}
