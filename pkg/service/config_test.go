package service

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

type haConfig struct {
	ListenPort uint16
	Peers      []string
	Timeout    time.Duration
	LegacyAddr []netip.Addr
}

type testConfig struct {
	Common     `yaml:",inline"`
	BrokerName string
	BatchSize  Size
	Async      bool
	Ratio      float64
	HA         haConfig `yaml:"ha"`
}

func testDefaults() *testConfig {
	return &testConfig{Common: Defaults(""), BrokerName: "broker-a", BatchSize: 32 << 10, HA: haConfig{ListenPort: 10912, Timeout: 5 * time.Second}}
}

// loadTest loads a file of the given text with environment and -set values.
func loadTest(t *testing.T, text string, environ, sets []string) (*testConfig, *settings, error) {
	t.Helper()
	cfg := testDefaults()
	s, err := newSettings(cfg)
	if err != nil {
		t.Fatal(err)
	}
	file := ""
	if text != "" {
		t.Chdir(t.TempDir())
		file = filepath.Join("conf", "storage.yaml")
		if err := errors.Join(os.Mkdir("conf", 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return cfg, s, s.load(file, "TANDEM_STORAGE_", environ, sets)
}

func TestSourcesInOrder(t *testing.T) {
	cfg, s, err := loadTest(t, `
# a comment
brokerName: "from file"   # another
batchSize: 64KiB
async: true
ratio: 0.5
telemetry:
ha:
  listenPort: 1
  timeout: 1m30s
  peers:
    - a:1
    - b:2
  legacyAddr: [10.0.0.2]
`, []string{"PATH=/bin", "TANDEM_STORAGE_HA_LISTEN_PORT=2", "TANDEM_STORAGE_BATCH_SIZE=1MiB", "TANDEM_STORAGE_CONFIG=x"},
		[]string{"ha.listenPort=3", "ha.peers=c:3, d:4", "ha.legacyAddr=[10.0.0.1, '::1']"})
	if err != nil {
		t.Fatal(err)
	}
	want := &testConfig{
		Common: Defaults(""), BrokerName: "from file", BatchSize: 1 << 20, Async: true, Ratio: 0.5,
		HA: haConfig{
			ListenPort: 3, Peers: []string{"c:3", "d:4"}, Timeout: 90 * time.Second,
			LegacyAddr: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::1")},
		},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got  %+v\nwant %+v", cfg, want)
	}
	for key, source := range map[string]string{
		"brokerName": "conf/storage.yaml:3", "ha.listenPort": "-set", "batchSize": "TANDEM_STORAGE_BATCH_SIZE", "ha.timeout": "conf/storage.yaml:10",
		"ha.peers[1]": "-set", "telemetry.logLevel": "",
	} {
		if got := s.sourceOf(key); got != source {
			t.Errorf("%s comes from %q, want %q", key, got, source)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		name, text    string
		environ, sets []string
		want          string // "|" between several errors
	}{
		{
			"unknown key", "brokerName: a\nbrokrName: b", nil, nil,
			"conf/storage.yaml:2: brokrName: unknown key; did you mean brokerName?",
		},
		{
			"swapped letters", "ha:\n  listenProt: 1", nil, nil,
			"conf/storage.yaml:2: ha.listenProt: unknown key; did you mean ha.listenPort?",
		},
		{
			"wrong level", "listenPort: 1", nil, nil,
			"conf/storage.yaml:1: listenPort: unknown key; did you mean ha.listenPort?",
		},
		{
			"nothing near", "colour: red", nil, nil,
			"conf/storage.yaml:1: colour: unknown key; -print-config shows the keys",
		},
		{
			"all at once", "x1: 1\nbatchSize: 3 apples\nha: {timeout: 5}", nil, nil,
			"conf/storage.yaml:1: x1: unknown key; -print-config shows the keys|" +
				`conf/storage.yaml:2: batchSize: "3 apples" is no size: write bytes or a unit, such as 512, 32KiB, 4MiB, 1GiB|` +
				`conf/storage.yaml:3: ha.timeout: "5" is no duration: write a number and a unit, such as 500ms, 5s, 1h30m`,
		},
		{
			"too large", "ha:\n  listenPort: 70000", nil, nil,
			`conf/storage.yaml:2: ha.listenPort: "70000" is no whole number from 0 of 16 bits`,
		},
		{"a list for a value", "brokerName: [a]", nil, nil, "conf/storage.yaml:1: brokerName: wants one value, not a list"},
		{"a value for a list", "ha:\n  peers: a", nil, nil, `conf/storage.yaml:2: ha.peers: wants a list, not the value "a"; write [a, b]`},
		{"a value for a section", "ha: 1", nil, nil, `conf/storage.yaml:1: ha: wants keys of its own, not the value "1"`},
		{"no value", "brokerName:", nil, nil, "conf/storage.yaml:1: brokerName: has no value"},
		{"yes", "async: yes", nil, nil, `conf/storage.yaml:1: async: "yes" is neither true nor false`},
		{"anchor", "brokerName: &a b", nil, nil, "conf/storage.yaml:1: brokerName: anchors, aliases and tags are not supported"},
		{"twice", "async: true\nasync: false", nil, nil, "conf/storage.yaml:2: not valid YAML: mapping key \"async\" already defined at [1:1]"},
		{"tab", "ha:\n\tlistenPort: 1", nil, nil, "conf/storage.yaml:2: not valid YAML: found character"},
		{"two documents", "async: true\n---\nasync: false", nil, nil, "conf/storage.yaml:3: more than one YAML document"},
		{
			"unknown variable", "",
			[]string{"TANDEM_STORAGE_HA_LISTEN_PROT=1"},
			nil,
			"TANDEM_STORAGE_HA_LISTEN_PROT: unknown environment variable; did you mean TANDEM_STORAGE_HA_LISTEN_PORT?",
		},
		{
			"unknown variable, near to nothing but its prefix", "",
			[]string{"TANDEM_STORAGE_FOO=1"},
			nil,
			"TANDEM_STORAGE_FOO: unknown environment variable; -print-config shows the keys",
		},
		{
			"variable without the service", "",
			[]string{"TANDEM_BROKER_NAME=x", "TANDEM_ADDR=x", "TANDEM_LEDGER_BROKER_NAME=x"},
			nil,
			"TANDEM_BROKER_NAME: unknown environment variable; did you mean TANDEM_STORAGE_BROKER_NAME?",
		},
		{
			"bad variable", "",
			[]string{"TANDEM_STORAGE_ASYNC=maybe"},
			nil,
			`TANDEM_STORAGE_ASYNC: async: "maybe" is neither true nor false`,
		},
		{
			"properties", "brokerRole=SLAVE\nbrokerId=1", nil, nil,
			"conf/storage.yaml:1: these look like RocketMQ's properties (key=value); write YAML: key: value",
		},
		{"bad set", "", nil, []string{"ha.listenPort"}, `-set: wants key=value, not "ha.listenPort"`},
		{"unknown set", "", nil, []string{"broker=x"}, "-set: broker: unknown key; -print-config shows the keys"},
		{"section set", "", nil, []string{"ha=x"}, "-set: ha: has keys of its own; set ha.<key>"},
		{"list set", "", nil, []string{"ha.legacyAddr=1.2.3.4,x"}, `-set: ha.legacyAddr[1]: ParseAddr("x"): unable to parse IP`},
		{"host:port without quotes", "ha:\n  peers: [a: 1]", nil, nil, "conf/storage.yaml:2: ha.peers[0]: wants one value, not a map; put a text with a colon, as host:port, in quotes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, _, err := loadTest(t, tc.text, tc.environ, tc.sets)
			if err == nil {
				t.Fatalf("accepted: %+v", cfg)
			}
			var out strings.Builder
			p := process{stderr: &out}
			p.fail("storage", ExitConfig, err)
			got := strings.Split(strings.TrimSpace(out.String()), "\n")
			want := strings.Split(tc.want, "|")
			if len(got) != len(want) {
				t.Fatalf("got %q", got)
			}
			for i := range want {
				if !strings.HasPrefix(got[i], "storage: "+want[i]) {
					t.Errorf("got  %s\nwant storage: %s", got[i], want[i])
				}
			}
		})
	}
}

func TestErrorsAreTyped(t *testing.T) {
	_, _, err := loadTest(t, "nonsense: 1", nil, nil)
	if !errors.Is(err, ErrUnknownKey) {
		t.Errorf("got %v", err)
	}
	_, _, err = loadTest(t, "async: 1", nil, nil)
	if e := errdefs.As(err); !errors.Is(err, ErrBadValue) || e.Field != "async" {
		t.Errorf("got %v", err)
	}
	s, _ := newSettings(testDefaults())
	if err := s.load("/no/such/file.yaml", "X_", nil, nil); !errors.Is(err, ErrConfigFile) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	s, _ = newSettings(testDefaults())
	if e := errdefs.As(s.load(t.TempDir(), "X_", nil, nil)); !errors.Is(e, ErrConfigFile) || !strings.Contains(e.Remedy, "-config") {
		t.Errorf("a folder: %v", e)
	}
}

// TestForeignKeys: what takes the place of a key of RocketMQ's.
func TestForeignKeys(t *testing.T) {
	s, err := newSettings(&struct{ Listen string }{})
	if err != nil {
		t.Fatal(err)
	}
	s.foreign = map[string]string{"listenPort": "write listen: HOST:PORT"}
	err = s.load("", "TANDEM_STORAGE_", nil, []string{"listenPort=1"})
	if err == nil || !strings.Contains(err.Error(), "listenPort: is RocketMQ's") || !strings.Contains(err.Error(), "write listen: HOST:PORT") {
		t.Error(err)
	}
}

// Kubernetes sets TANDEM_STORAGE_... itself for a Service named tandem-storage.
func TestServiceLinksAreIgnored(t *testing.T) {
	_, _, err := loadTest(t, "", []string{
		"TANDEM_STORAGE_SERVICE_HOST=10.0.0.1", "TANDEM_STORAGE_SERVICE_PORT=10911", "TANDEM_STORAGE_SERVICE_PORT_GRPC=10911",
		"TANDEM_STORAGE_PORT=tcp://10.0.0.1:10911", "TANDEM_STORAGE_PORT_10911_TCP=tcp://10.0.0.1:10911",
		"TANDEM_STORAGE_PORT_10911_TCP_PROTO=tcp", "TANDEM_STORAGE_PORT_10911_TCP_PORT=10911", "TANDEM_STORAGE_PORT_10911_TCP_ADDR=10.0.0.1",
		"TANDEM_STORAGE_MASTER_SERVICE_HOST=10.0.0.1", "TANDEM_STORAGE_MASTER_PORT=tcp://10.0.0.1:10911",
	}, nil)
	if err != nil {
		t.Error(err)
	}
	if _, _, err := loadTest(t, "", []string{"TANDEM_STORAGE_LISTEN_PORT=1"}, nil); err == nil {
		t.Error("an unknown variable that ends in _PORT was ignored")
	}
}

func TestPrintedConfigLoadsBack(t *testing.T) {
	text := "brokerName: 'true # no'\nratio: 0.25\n" +
		"ha: {peers: ['a,b', c], legacyAddr: ['::1'], timeout: 1500ms}\nbatchSize: 3GiB"
	cfg, s, err := loadTest(t, text, nil, []string{"async=true"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	s.docs = docsOf(map[string]string{"ha.timeout": "the longest wait: 0 is none"})
	if err := s.print(&out); err != nil {
		t.Fatal(err)
	}
	again, _, err := loadTest(t, out.String(), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !reflect.DeepEqual(again, cfg) {
		t.Errorf("got  %+v\nwant %+v\n%s", again, cfg, out.String())
	}
	for _, want := range []string{"async: true  # -set\n", "batchSize: 3GiB  # conf/storage.yaml:4\n", "  timeout: 1.5s  #", "  # info, debug, warn or error\n  logLevel: info\n", "  # the longest wait: 0 is none\n  timeout: 1.5s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestEnvNames(t *testing.T) {
	for key, want := range map[string]string{
		"ha.listenPort": "HA_LISTEN_PORT", "mappedFileSizeCommitLog": "MAPPED_FILE_SIZE_COMMIT_LOG", "grpc.tls.caFile": "GRPC_TLS_CA_FILE",
		"useTLSAlways": "USE_TLS_ALWAYS", "http2Window": "HTTP2_WINDOW",
	} {
		if got := envName(key); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
	type clash struct {
		HAPort int                `yaml:"haPort"`
		HA     struct{ Port int } `yaml:"ha"`
	}
	if _, err := newSettings(&clash{}); err == nil {
		t.Error("two keys with one variable were accepted")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "512": 512, "512B": 512, "32KiB": 32 << 10, "4 MiB": 4 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40, "-1KiB": -1024,
	} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%s: got %d, %v", text, s, err)
		}
		var back Size
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("%d is written %s and read %d", s, s, back)
		}
	}
	for _, text := range []string{"", "KiB", "1KB", "1.5GiB", "9999999TiB", "1e3"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, s)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add("brokerName: a\nha: {peers: [a, b], legacyAddr: ['::1']}")
	f.Add("a: &x {b: c}\n<<: *x")
	f.Add("ha:\n  - 1\n? {a: b}\n: c")
	f.Fuzz(func(t *testing.T, text string) {
		cfg := testDefaults()
		s, err := newSettings(cfg)
		if err != nil {
			t.Fatal(err)
		}
		y := yamlReader{s: s, place: func(int) string { return "fuzz" }}
		y.document([]byte(text))
		for _, err := range s.errs {
			if e := errdefs.As(err); e == nil || e.Meta[sourceKey] == "" {
				t.Errorf("an error without its source: %v", err)
			}
		}
	})
}

func TestValidationNamesTheSource(t *testing.T) {
	var out, stdout strings.Builder
	spec := Spec[testConfig]{
		Name: "storage", NewConfig: testDefaults,
		Validate: func(c *testConfig) error {
			return errors.Join(errdefs.Invalid("batchSize", "%v is not a multiple of 4KiB", c.BatchSize),
				errdefs.Invalid("ha.peers[0]", "is this node"), errdefs.Invalid("brokerName", "is taken"),
				errdefs.Invalid("ha", "contradicts itself"))
		},
		Build: func(context.Context, *testConfig, *Env) ([]Actor, error) { panic("built an invalid configuration") },
	}
	code := run(spec, &process{
		args: []string{"-set", "ha.peers=a"}, environ: []string{"TANDEM_STORAGE_BATCH_SIZE=1000", "TANDEM_STORAGE_TELEMETRY_EXPORTER=x"},
		stdout: &stdout, stderr: &out,
	})
	want := `storage: TANDEM_STORAGE_TELEMETRY_EXPORTER: telemetry.exporter: "x" is not one of none, stdout, otlp
storage: TANDEM_STORAGE_BATCH_SIZE: batchSize: 1000 is not a multiple of 4KiB
storage: -set: ha.peers[0]: is this node
storage: not set: brokerName: is taken
storage: -set: ha: contradicts itself
`
	if code != ExitConfig || out.String() != want {
		t.Errorf("code %d\n got %s\nwant %s", code, out.String(), want)
	}
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("async: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	run(spec, &process{args: []string{"-config", file}, stdout: &stdout, stderr: &out})
	if want := "storage: " + file + ", not set: brokerName: is taken\n"; !strings.Contains(out.String(), want) {
		t.Errorf("with a file: %s", out.String())
	}
}
