package telemetry

import (
	"cmp"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Exporters of spans; OTLP takes the metrics too.
const (
	None   = "none"
	Stdout = "stdout"
	OTLP   = "otlp"
)

// Formats and levels of the log.
const (
	Text  = "text"
	JSON  = "json"
	Debug = "debug"
	Info  = "info"
	Warn  = "warn"
	Error = "error"
)

const defaultShutdown = 2 * time.Second

// Config are the settings of a process. Empty words mean the first of each list.
type Config struct {
	// Exporter is none, stdout or otlp.
	Exporter string `yaml:"exporter"`
	// Endpoint of the OTLP collector (gRPC): host:port is plain text, http:// and https:// say so. Empty: that of
	// OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint string `yaml:"endpoint"`
	// SampleRatio is the part of the traces that begin here that is recorded, 0 to 1; the sampling of a caller is followed.
	SampleRatio float64 `yaml:"sampleRatio"`
	// LogLevel is info, debug, warn or error.
	LogLevel string `yaml:"logLevel"`
	// LogFormat is text or json.
	LogFormat string `yaml:"logFormat"`
	// DebugListen is the address of metrics, health and pprof; empty: none.
	DebugListen string `yaml:"debugListen"`
	// Instance is service.instance.id; empty: made of host and process.
	Instance string `yaml:"instance"`
	// ShutdownTimeout bounds the last flush; 0: 2 s.
	ShutdownTimeout time.Duration `yaml:"shutdownTimeout"`

	LogWriter  io.Writer `yaml:"-"` // nil: standard error
	SpanWriter io.Writer `yaml:"-"` // of the stdout exporter; nil: standard output
}

// Docs say in one line what each key of a Config means.
var Docs = map[string]string{ //nolint:gochecknoglobals // a table
	"exporter":        "where spans and metrics go: none, stdout or otlp",
	"endpoint":        "OTLP collector (gRPC), host:port or http(s)://host:port; empty: that of OTEL_EXPORTER_OTLP_ENDPOINT",
	"sampleRatio":     "part of the traces that begin here that is recorded, 0 to 1",
	"logLevel":        "info, debug, warn or error",
	"logFormat":       "text or json",
	"debugListen":     "address of metrics, health and pprof; empty: none",
	"instance":        "service.instance.id; empty: made of host and process",
	"shutdownTimeout": "bounds the last flush of telemetry; 0: 2s",
}

// Validate checks the settings, which are below the key telemetry.
func (c *Config) Validate() error {
	const prefix = "telemetry."
	for _, f := range []struct {
		name, value string
		allowed     []string
	}{
		{"exporter", c.Exporter, []string{None, Stdout, OTLP}},
		{"logLevel", c.LogLevel, []string{Info, Debug, Warn, Error}},
		{"logFormat", c.LogFormat, []string{Text, JSON}},
	} {
		if f.value != "" && !slices.Contains(f.allowed, f.value) {
			return errdefs.Invalid(prefix+f.name, "%q is not one of %s", f.value, strings.Join(f.allowed, ", "))
		}
	}
	switch {
	case !(c.SampleRatio >= 0 && c.SampleRatio <= 1): // NaN too
		return errdefs.Invalid(prefix+"sampleRatio", "%v is not between 0 and 1", c.SampleRatio)
	case c.ShutdownTimeout < 0:
		return errdefs.Invalid(prefix+"shutdownTimeout", "%v is negative", c.ShutdownTimeout)
	}
	if c.DebugListen != "" {
		if _, _, err := net.SplitHostPort(c.DebugListen); err != nil {
			return errdefs.Invalid(prefix+"debugListen", "%q is not host:port", c.DebugListen).WithRemedy("write for example 127.0.0.1:10913")
		}
	}
	if c.Exporter == OTLP {
		return checkEndpoint(prefix+"endpoint", c.Endpoint)
	}
	return nil
}

func checkEndpoint(field, endpoint string) error {
	if endpoint == "" {
		if environmentEndpoint() != "" {
			return nil
		}
		return errdefs.Invalid(field, "is empty, and the exporter is otlp").
			WithRemedy("set it to the collector's gRPC address, such as 127.0.0.1:4317")
	}
	u, err := url.Parse(endpointURL(endpoint))
	if err == nil {
		_, _, err = net.SplitHostPort(u.Host)
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errdefs.Invalid(field, "%q is neither host:port nor http://host:port nor https://host:port", endpoint)
	}
	return nil
}

// endpointURL is the collector's URL.
func endpointURL(s string) string {
	if strings.Contains(s, "://") {
		return s
	}
	return "http://" + s
}

// environmentEndpoint is the collector that OpenTelemetry's own variables name.
func environmentEndpoint() string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
}
