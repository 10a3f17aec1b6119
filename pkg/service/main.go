package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service/ballast"
	"github.com/tandemlog/tandem/pkg/service/build"
	"github.com/tandemlog/tandem/pkg/telemetry"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitFatal  = 1
	ExitConfig = 2
	ExitUndone = 3 // of a command: it could not do its work
	ExitKilled = 130
)

const (
	// DefaultShutdownTimeout is below the ten seconds that container engines wait before they kill.
	DefaultShutdownTimeout = 9 * time.Second

	healthTimeout = 3 * time.Second
	// minClose is what closes get when the actors used up the budget.
	minClose  = time.Second
	configVar = "CONFIG"
)

// Common is the part of the configuration that all services have. A service's Config embeds it.
type Common struct {
	Telemetry telemetry.Config `yaml:"telemetry"`
	// ShutdownTimeout bounds everything between the signal and the end, the last flush of telemetry aside; 0: 9 s.
	ShutdownTimeout time.Duration `yaml:"shutdownTimeout"`
}

// Defaults returns the usual Common with a debug listener at debugListen.
func Defaults(debugListen string) Common {
	return Common{
		Telemetry: telemetry.Config{
			Exporter: telemetry.None, SampleRatio: 1, LogLevel: telemetry.Info, LogFormat: telemetry.Text,
			DebugListen: debugListen, ShutdownTimeout: 2 * time.Second,
		},
		ShutdownTimeout: DefaultShutdownTimeout,
	}
}

func (c *Common) common() *Common { return c }

// Spec describes a service; C is its configuration.
type Spec[C any] struct {
	Name    string // one lower-case word: binary, prefix of variables
	Version string // "": from the build
	Summary string // one sentence for -help
	// NewConfig returns the defaults; nil: zeros.
	NewConfig func() *C
	// Docs say in one line what each key means, for -print-config.
	Docs map[string]string
	// Foreign are keys of RocketMQ that this service does not have, and what takes their place.
	Foreign map[string]string
	// Validate checks what types cannot. Errors by errdefs.Invalid name the key; the shell adds where its value came from.
	Validate func(*C) error
	// Health asks the running service named by the configuration, for -health; nil: there is no -health.
	Health func(context.Context, *C) error
	// Build makes the actors, in the order in which they start. It may take long: ctx ends with the first signal.
	Build func(context.Context, *C, *Env) ([]Actor, error)
	// Commands are run instead of the service when the first argument names one.
	Commands []Command[C]
}

// Command is a task beside the service with the same configuration, such as a check of its files. The exit code is 1 for an error
// of class DataLoss, which is what it found, 2 for InvalidArgument, which is what it was given, and 3 for others.
type Command[C any] struct {
	Name, Args, Summary string
	Run                 func(ctx context.Context, cfg *C, args []string, out io.Writer) error
}

// Env is what Build gets besides its configuration.
type Env struct {
	*telemetry.Telemetry
	Name, Version, Config string        // Config is the file, if any
	Budget                time.Duration // of a stop, as configured

	closers []closer
}

// Defer has f called when all actors have stopped, or when Build fails; the last one deferred is called first. cause is
// nil after a clean stop. When actors would not stop, f is not called: what it closes may be in use.
func (e *Env) Defer(name string, f func(cause error) error) {
	e.closers = append(e.closers, closer{name: name, f: f})
}

// Main runs a service with the arguments and environment of the process and returns its exit code.
func Main[C any](spec Spec[C]) int {
	defer ballast.Hold()()
	signal.Ignore(syscall.SIGPIPE) // a reader of our log that went away is no reason to die
	p := process{args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr}
	return run(spec, &p)
}

// process is what a run sees of the world.
type process struct {
	args, environ  []string
	stdout, stderr io.Writer
}

func run[C any](spec Spec[C], p *process) int {
	if spec.Version == "" {
		spec.Version = build.Version()
	}
	cfg := new(C)
	if spec.NewConfig != nil {
		cfg = spec.NewConfig()
	}
	s, err := newSettings(cfg)
	if err != nil {
		return p.fail(spec.Name, ExitConfig, err)
	}
	s.foreign = spec.Foreign
	if spec.Docs != nil {
		s.docs = docsOf(spec.Docs)
	}
	flags, code := parseFlags(&spec, s, p)
	if flags == nil {
		return code
	}
	if flags.version {
		fmt.Fprintf(p.stdout, "%s %s\n", spec.Name, spec.Version) //nolint:errcheck // nobody to tell
		return ExitOK
	}
	if err := loadConfig(&spec, cfg, s, flags, p); err != nil {
		return p.fail(spec.Name, ExitConfig, err)
	}
	switch {
	case flags.printConfig:
		if err := s.print(p.stdout); err != nil {
			return p.fail(spec.Name, ExitFatal, err)
		}
		return ExitOK
	case flags.checkConfig:
		fmt.Fprintf(p.stdout, "%s: the configuration is valid\n", spec.Name) //nolint:errcheck // nobody to tell
		return ExitOK
	case flags.health:
		ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
		defer cancel()
		if err := spec.Health(ctx, cfg); err != nil {
			return p.fail(spec.Name, ExitFatal, err)
		}
		return ExitOK
	}
	return runService(&spec, cfg, flags, p)
}

// loadConfig reads and checks the configuration.
func loadConfig[C any](spec *Spec[C], cfg *C, s *settings, flags *flagValues, p *process) error {
	prefix := envPrefix(spec.Name)
	file := flags.config
	if file == "" {
		i := slices.IndexFunc(p.environ, func(kv string) bool { return strings.HasPrefix(kv, prefix+configVar+"=") })
		if i >= 0 {
			_, file, _ = strings.Cut(p.environ[i], "=")
		}
	}
	flags.config = file
	if err := s.load(file, prefix, p.environ, flags.sets); err != nil {
		return err
	}
	var errs []error
	if c := commonOf(cfg); c != nil {
		errs = append(errs, c.Telemetry.Validate())
		if c.ShutdownTimeout < 0 {
			errs = append(errs, errdefs.Invalid("shutdownTimeout", "%v is negative", c.ShutdownTimeout))
		}
	}
	if spec.Validate != nil {
		errs = append(errs, spec.Validate(cfg))
	}
	return s.withSources(errors.Join(errs...))
}

func envPrefix(name string) string { return "TANDEM_" + envName(name) + "_" }

func commonOf(cfg any) *Common {
	if c, ok := cfg.(interface{ common() *Common }); ok {
		return c.common()
	}
	return nil
}

// withSources adds to each field error where the field's value came from.
func (s *settings) withSources(err error) error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok { // each part by itself
		var out []error
		for _, one := range many.Unwrap() {
			out = append(out, s.withSources(one))
		}
		return errors.Join(out...)
	}
	e := errdefs.As(err)
	if e == nil || e.Field == "" || e.Meta[sourceKey] != "" {
		return err
	}
	source := s.sourceOf(e.Field)
	if source == "" {
		source = s.unset
	}
	return e.With(sourceKey, source)
}

// fail writes err, one line for each of a join, and returns code.
func (p *process) fail(name string, code int, err error) int {
	if many, ok := err.(interface{ Unwrap() []error }); ok && code == ExitConfig { // each part by itself
		for _, one := range many.Unwrap() {
			p.fail(name, code, one)
		}
		return code
	}
	text := Explain(err)
	var e *errdefs.Error
	if errors.As(err, &e) && e.Meta[sourceKey] != "" {
		source := e.Meta[sourceKey]
		c := *e
		c.Meta = maps.Clone(e.Meta)
		delete(c.Meta, sourceKey)
		text = source + ": " + Explain(&c)
	}
	fmt.Fprintf(p.stderr, "%s: %s\n", name, text) //nolint:errcheck // nobody to tell
	return code
}

// lastWord tells the fatal error as the last line, in the form of the log.
func (p *process) lastWord(name string, t *telemetry.Telemetry, json bool, err error) int {
	if json {
		t.Logger.Error("service failed", slog.String("service", name), slog.String("error", Explain(err)))
		return ExitFatal
	}
	return p.fail(name, ExitFatal, err)
}
