package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/peercert"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestIllegalMessages: what is wrong with a put is said field by field, and nothing gets into the log.
func TestIllegalMessages(t *testing.T) {
	t.Parallel()
	n := alone(t, func(c *Config) { c.MaxMessageSize = 100 << 10 }).start().awaitOpen()
	n.put([]byte("one"))
	end := n.end64()
	minus := int32(-1)
	for name, c := range map[string]struct {
		field  string
		change func(*storagev1.PutRequest)
	}{
		"no message":         {"message", func(r *storagev1.PutRequest) { r.Message = nil }},
		"no topic":           {"message.topic", func(r *storagev1.PutRequest) { r.Message.Topic = "" }},
		"topic of 128":       {"message.topic", func(r *storagev1.PutRequest) { r.Message.Topic = strings.Repeat("t", 128) }},
		"topic with a slash": {"message.topic", func(r *storagev1.PutRequest) { r.Message.Topic = "../../etc" }},
		"topic of dots":      {"message.topic", func(r *storagev1.PutRequest) { r.Message.Topic = ".." }},
		"system topic":       {"message.topic", func(r *storagev1.PutRequest) { r.Message.Topic = "SCHEDULE_TOPIC_XXXX" }},
		"empty body":         {"message.body", func(r *storagev1.PutRequest) { r.Message.Body = nil }},
		"oversized body":     {"message.body", func(r *storagev1.PutRequest) { r.Message.Body = noise(100<<10 + 1) }},
		"large properties": {"message.properties", func(r *storagev1.PutRequest) {
			r.Message.Properties = map[string]string{"a": strings.Repeat("p", 32767)}
		}},
		"negative queue":      {"message.queue_id", func(r *storagev1.PutRequest) { r.Message.QueueId = &minus }},
		"queue that is not":   {"message.queue_id", func(r *storagev1.PutRequest) { q := int32(8); r.Message.QueueId = &q }},
		"born before 1970":    {"message.born_timestamp", func(r *storagev1.PutRequest) { r.Message.BornTimestamp = -1 }},
		"negative acks":       {"acks", func(r *storagev1.PutRequest) { r.Acks = &minus }},
		"acks of a thousand":  {"acks", func(r *storagev1.PutRequest) { a := int32(1000); r.Acks = &a }},
		"negative timeout":    {"timeout", func(r *storagev1.PutRequest) { r.Timeout = durationpb.New(-time.Second) }},
		"separator in a tag":  {"message.tag", func(r *storagev1.PutRequest) { r.Message.Tag = "a\x01b" }},
		"separator in a key":  {"message.keys", func(r *storagev1.PutRequest) { r.Message.Keys = []string{"a b"} }},
		"property of a name":  {"message.properties[\"\"]", func(r *storagev1.PutRequest) { r.Message.Properties = map[string]string{"": "a"} }},
		"property without it": {"message.properties", func(r *storagev1.PutRequest) { r.Message.Properties = map[string]string{"a": ""} }},
	} {
		req := &storagev1.PutRequest{Message: &storagev1.Message{Topic: "TopicTest", Body: []byte("x")}}
		c.change(req)
		_, err := n.message().Put(t.Context(), req)
		_, fields := servicetest.Typed(t, name, err)
		if status.Code(err) != codes.InvalidArgument || !slices.Contains(fields, c.field) {
			t.Errorf("%s: fields %q of %v, want %s", name, fields, err, c.field)
		}
	}
	for name, c := range map[string]func(*storagev1.Message){
		"delayed":          func(m *storagev1.Message) { m.Properties = map[string]string{"DELAY": "3"} },
		"timed":            func(m *storagev1.Message) { m.Properties = map[string]string{"TIMER_DELIVER_MS": "3"} },
		"transactional":    func(m *storagev1.Message) { m.Properties = map[string]string{"TRAN_MSG": "true"} },
		"in a transaction": func(m *storagev1.Message) { m.SysFlag = 4 },
	} {
		m := &storagev1.Message{Topic: "TopicTest", Body: []byte("x")}
		c(m)
		_, err := n.message().Put(t.Context(), &storagev1.PutRequest{Message: m})
		if e := asError(err); e.Class != errdefs.Unimplemented || e.Reason != "NOT_BUILT" || e.Field == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := n.end64(); got != end {
		t.Errorf("the log grew from %d to %d", end, got)
	}
	// A record that no file can hold.
	n.halt()
	n.change(asOnDisk, func(c *Config) { c.MaxMessageSize = 1 << 20 })
	n.start().awaitOpen()
	if r := n.put(noise(512 << 10)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_MESSAGE_ILLEGAL || r.GetReason() == "" {
		t.Errorf("a record larger than a file: %v", r)
	}
	if r := n.put([]byte("two")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetOffset() != end {
		t.Errorf("the next put: %v", r)
	}
}

func asError(err error) *errdefs.Error {
	if e := errdefs.As(grpcx.FromStatus(err)); e != nil {
		return e
	}
	return &errdefs.Error{}
}

// TestOffsetsOutside: reads outside of the log and of a queue name what is there.
func TestOffsetsOutside(t *testing.T) {
	t.Parallel()
	n := alone(t).start().awaitOpen()
	queue := int32(0)
	for range 3 {
		n.put([]byte("x"), func(r *storagev1.PutRequest) { r.Message.QueueId = &queue })
	}
	end := n.end64()
	n.awaitEnd(end)
	ctx := t.Context()
	for _, offset := range []int64{-1, end, end + 1, 1 << 62, 5} {
		_, err := n.message().GetByOffset(ctx, &storagev1.GetByOffsetRequest{Offset: offset})
		if e := asError(err); e.Class != errdefs.OutOfRange && e.Class != errdefs.InvalidArgument || e.Meta["offset"] == "" {
			t.Errorf("get at %d: %v", offset, err)
		} else if strings.Contains(e.Error(), "damaged") {
			t.Errorf("an offset at which no record starts, %d: %v", offset, err)
		}
	}
	for _, size := range []int32{1, 1 << 30, -1} {
		if _, err := n.message().GetByOffset(ctx, &storagev1.GetByOffsetRequest{Size: size}); asError(err).Class == errdefs.Unknown {
			t.Errorf("get of size %d: %v", size, err)
		}
	}
	for _, r := range []*storagev1.ChecksumRequest{
		{FromOffset: -1}, {FromOffset: end + 1}, {ToOffset: end + 1}, {FromOffset: 100, ToOffset: 50}, {StretchSize: 1}, {StretchSize: 1 << 40},
	} {
		_, err := n.admin().Checksum(ctx, r)
		if _, fields := servicetest.Typed(t, "checksum", err); len(fields) != 1 {
			t.Errorf("checksum of %v: %v", r, err)
		}
	}
	for offset, want := range map[int64]storagev1.GetStatus{
		3: storagev1.GetStatus_GET_STATUS_NO_NEW_MESSAGE, 4: storagev1.GetStatus_GET_STATUS_OFFSET_OVERFLOW, 1 << 62: storagev1.GetStatus_GET_STATUS_OFFSET_OVERFLOW,
	} {
		r, err := n.message().Get(ctx, &storagev1.GetRequest{Topic: "TopicTest", QueueOffset: offset})
		if err != nil || r.GetStatus() != want || r.GetMaxQueueOffset() != 3 {
			t.Errorf("get at queue offset %d: %v, %v", offset, r, err)
		}
	}
	r, err := n.message().Get(ctx, &storagev1.GetRequest{Topic: "TopicTest", QueueId: 99})
	if err != nil || r.GetStatus() != storagev1.GetStatus_GET_STATUS_NO_QUEUE {
		t.Errorf("get of a queue that is not: %v, %v", r, err)
	}
}

// TestFoldersThatCannotBeServed: the start fails with a typed error and nothing on the disk changes.
func TestFoldersThatCannotBeServed(t *testing.T) {
	t.Parallel()
	golden := filepath.Join(testkit.Golden(t, "rocketmq-5.3.3"), "master")
	first := filepath.Join("commitlog", "00000000000000262144")
	for name, c := range map[string]struct {
		reason string
		says   string
		breaks func(t *testing.T, n *node)
	}{
		"a file missing in the middle": {"FILE_MISSING", "262144", func(t *testing.T, n *node) { remove(t, n, first) }},
		"a short file":                 {"FILE_SIZE", "00000000000000262144", func(t *testing.T, n *node) { truncate(t, n, first, 1000) }},
		"another file size": {"FILE_SIZE", "262144", func(_ *testing.T, n *node) {
			n.change(func(c *Config) { c.MappedFileSizeCommitLog = 1 << 20 })
		}},
		"another queue file size": {"QUEUE_FILE_SIZE", "2000", func(_ *testing.T, n *node) {
			n.change(func(c *Config) { c.MappedFileSizeConsumeQueue = 4000 })
		}},
		"a lineage that is broken": {"", "tandem/lineage", func(t *testing.T, n *node) {
			for _, f := range []string{"lineage", "lineage.bak"} {
				write(t, n, filepath.Join("tandem", f), "nonsense")
			}
		}},
		"a checkpoint that is a folder": {"", "checkpoint", func(t *testing.T, n *node) {
			remove(t, n, "checkpoint")
			if err := os.Mkdir(filepath.Join(n.cfg.StorePathRootDir, "checkpoint"), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		"a root that is a file": {"", "store", func(t *testing.T, n *node) {
			if err := os.RemoveAll(n.cfg.StorePathRootDir); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(n.cfg.StorePathRootDir, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 0, asyncMaster).takeOver(golden)
			c.breaks(t, n)
			before := files(t, n.cfg.StorePathRootDir, "")
			err := n.tryStart()
			if err == nil {
				t.Fatal("it started")
			}
			if errdefs.ReasonOf(err) != c.reason && c.reason != "" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v has reason %q, want %q and %q in it", err, errdefs.ReasonOf(err), c.reason, c.says)
			}
			after := files(t, n.cfg.StorePathRootDir, "")
			for _, ours := range []string{"lock", "checkpoint", "tandem/lineage", "tandem/lineage.bak"} {
				delete(before, ours)
				delete(after, ours)
			}
			equalFiles(t, before, after)
		})
	}
}

func remove(t *testing.T, n *node, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(n.cfg.StorePathRootDir, name)); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, n *node, name string, size int64) {
	t.Helper()
	if err := os.Truncate(filepath.Join(n.cfg.StorePathRootDir, name), size); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, n *node, name, content string) {
	t.Helper()
	name = filepath.Join(n.cfg.StorePathRootDir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTwoStoragesOnOneFolder: the second is turned away, in this process and in another, and the first does not notice.
func TestTwoStoragesOnOneFolder(t *testing.T) {
	t.Parallel()
	n := alone(t).start().awaitOpen()
	n.fill(10)
	other := alone(t)
	other.cfg.StorePathRootDir = n.cfg.StorePathRootDir
	if err := other.tryStart(); errdefs.ReasonOf(err) != "FOLDER_LOCKED" && !strings.Contains(strings.ToLower(err.Error()), "lock") {
		t.Errorf("a second storage on the folder: %v", err)
	}
	out, code := other.runToEnd()
	if code != 1 || !strings.Contains(out, "lock") {
		t.Errorf("a second process on the folder leaves with %d: %s", code, out)
	}
	n.fill(10)
	n.halt()
	other.start().awaitOpen()
}

// runToEnd runs the node as a child that is expected to end by itself.
func (n *node) runToEnd(args ...string) (out string, code int) {
	n.t.Helper()
	cmd := n.command(args...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	servicetest.Fork(n.t, cmd)
	timer := time.AfterFunc(testkit.Patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	return b.String(), cmd.ProcessState.ExitCode()
}

// TestStartsThatFail runs the whole process with what an operator gets wrong. Each leaves one line that names the key.
func TestStartsThatFail(t *testing.T) {
	t.Parallel()
	busy := alone(t).start().awaitOpen()
	one, two := servicetest.SelfSigned(t), servicetest.SelfSigned(t)
	for name, c := range map[string]struct {
		code   int
		says   []string
		change func(t *testing.T, n *node) (args []string)
	}{
		"unknown key": {2, []string{"brokerNam", "brokerName"}, func(*testing.T, *node) []string { return []string{"-set", "brokerNam=x"} }},
		"unknown key in a file": {2, []string{"storage.yaml:2", "haListenPort"}, func(t *testing.T, _ *node) []string {
			return []string{"-config", configFile(t, "brokerName: a\nhaListenPort: 10912\n")}
		}},
		"folder is a file": {1, []string{"storePathRootDir", "is a file"}, func(t *testing.T, n *node) []string {
			n.cfg.StorePathRootDir = configFile(t, "")
			return nil
		}},
		"wrong role":    {2, []string{"brokerRole", "MASTER"}, func(_ *testing.T, n *node) []string { n.cfg.BrokerRole = "MASTER"; return nil }},
		"wrong size":    {2, []string{"haTransferBatchSize"}, func(*testing.T, *node) []string { return []string{"-set", "haTransferBatchSize=32XB"} }},
		"port taken":    {1, []string{"listen", busy.cfg.Listen}, func(_ *testing.T, n *node) []string { n.cfg.Listen = busy.cfg.Listen; return nil }},
		"HA port taken": {1, []string{"haListen", busy.cfg.HAListen}, func(_ *testing.T, n *node) []string { n.cfg.HAListen = busy.cfg.HAListen; return nil }},
		"cert alone":    {2, []string{"keyFile"}, func(_ *testing.T, n *node) []string { n.cfg.TLS.CertFile = one + ".crt"; return nil }},
		"key of another": {2, []string{"tls.certFile", two + ".key"}, func(_ *testing.T, n *node) []string {
			n.cfg.TLS.CertFile, n.cfg.TLS.KeyFile = one+".crt", two+".key"
			return nil
		}},
		"certificate of another CA than the group's": {2, []string{"tls.certFile", "caFile"}, func(t *testing.T, n *node) []string {
			n.cfg.TLS = peercert.Section{CertFile: one + ".crt", KeyFile: one + ".key", CAFile: two + ".crt", RequireClientCert: true}
			n.cfg.HA.Peers = []string{n.cfg.Listen, servicetest.FreeAddr(t)}
			return []string{"-check-config"}
		}},
		"certificate of another host": {2, []string{"tls.certFile", "10.1.2.3", "127.0.0.1"}, func(t *testing.T, n *node) []string {
			n.cfg.TLS = peercert.Section{CertFile: one + ".crt", KeyFile: one + ".key", CAFile: one + ".crt", RequireClientCert: true}
			n.cfg.Advertise = "10.1.2.3:10911"
			n.cfg.HA.Peers = []string{n.cfg.Advertise, servicetest.FreeAddr(t)}
			return []string{"-check-config"}
		}},
		"no certificate": {2, []string{"none.crt"}, func(t *testing.T, n *node) []string {
			n.cfg.TLS.CertFile, n.cfg.TLS.KeyFile = filepath.Join(t.TempDir(), "none.crt"), one+".key"
			return nil
		}},
		"read-only folder": {1, []string{"store"}, func(t *testing.T, n *node) []string {
			dir := filepath.Dir(n.cfg.StorePathRootDir)
			if os.Getuid() == 0 { // root writes everywhere, save where nobody can
				n.cfg.StorePathRootDir = "/proc/store"
				return nil
			}
			if err := os.Chmod(dir, 0o555); err != nil { //nolint:gosec // a test of just that
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) //nolint:gosec // as it was
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := alone(t)
			n.cfg.Telemetry.DebugListen = ""
			out, code := n.runToEnd(c.change(t, n)...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			last := lines[len(lines)-1]
			if code != c.code {
				t.Errorf("exit code %d, want %d:\n%s", code, c.code, out)
			}
			for _, s := range c.says {
				if !strings.Contains(last, s) {
					t.Errorf("the last line does not say %q:\n%s", s, out)
				}
			}
		})
	}
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "storage.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestForeignNames: what is no file of RocketMQ's or ours stays where it is.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	n := newNode(t, 0, asyncMaster).takeOver(filepath.Join(testkit.Golden(t, "rocketmq-5.3.3"), "master"))
	foreign := map[string]string{
		"commitlog/notes.txt": "a", "commitlog/0000000000000026214x": "b", "consumequeue/README": "c", "consumequeue/TopicA/x": "d", "mine": "e",
	}
	for _, name := range slices.Sorted(maps.Keys(foreign)) {
		write(t, n, name, foreign[name])
	}
	n.start().awaitOpen()
	n.fill(50)
	n.halt()
	for name, want := range foreign {
		if have, err := os.ReadFile(filepath.Join(n.cfg.StorePathRootDir, name)); err != nil || string(have) != want {
			t.Errorf("%s: %q, %v", name, have, err)
		}
	}
}
