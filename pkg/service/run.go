package service

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/telemetry"
)

var (
	errSignal   = errors.New("signal")
	errStopping = errdefs.New(errdefs.Unavailable, "STOPPING", "the service is stopping")
)

// sameSignal is the time within which a signal that comes twice was sent once: to the process and to its group.
const sameSignal = 100 * time.Millisecond

// withSignals returns a context that ends with the first SIGTERM, SIGINT or SIGHUP; a second ends the process at once.
func withSignals(p *process, name string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		var first os.Signal
		var at time.Time
		for {
			var sig os.Signal
			select {
			case sig = <-signals:
			case <-done:
				return
			}
			if ctx.Err() != nil {
				if sig == first && time.Since(at) < sameSignal {
					continue
				}
				p.fail(name, ExitKilled, errors.New("second signal, leaving at once"))
				os.Exit(ExitKilled) //nolint:forbidigo // that is what a second signal asks for
			}
			first, at = sig, time.Now()
			cancel(errSignal)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// runService runs the service or one of its commands until it ends.
func runService[C any](spec *Spec[C], cfg *C, flags *flagValues, p *process) int {
	ctx, stop := withSignals(p, spec.Name)
	defer stop()
	if len(flags.args) > 0 {
		for _, c := range spec.Commands {
			if c.Name == flags.args[0] {
				if err := c.Run(ctx, cfg, flags.args[1:], p.stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
					return p.fail(spec.Name, commandCode(err), err)
				}
			}
		}
		return ExitOK
	}
	common := Defaults("")
	if c := commonOf(cfg); c != nil {
		common = *c
	}
	if common.ShutdownTimeout == 0 {
		common.ShutdownTimeout = DefaultShutdownTimeout
	}
	if common.Telemetry.LogWriter == nil {
		common.Telemetry.LogWriter = p.stderr
	}
	t, err := telemetry.Open(ctx, "tandem-"+spec.Name, spec.Version, common.Telemetry)
	if err != nil {
		return p.fail(spec.Name, ExitFatal, err)
	}
	env := &Env{Telemetry: t, Name: spec.Name, Version: spec.Version, Config: flags.config, Budget: common.ShutdownTimeout}
	build := func(ctx context.Context) ([]Actor, error) { return spec.Build(ctx, cfg, env) }
	if err := Serve(ctx, env, build); err != nil {
		return p.lastWord(spec.Name, t, common.Telemetry.LogFormat == telemetry.JSON, err)
	}
	return ExitOK
}

// commandCode is the exit code for a command's error: what it found is bad, what it was given is, or it could not do its work.
func commandCode(err error) int {
	if code, ok := map[errdefs.Class]int{errdefs.DataLoss: ExitFatal, errdefs.InvalidArgument: ExitConfig}[errdefs.ClassOf(err)]; ok {
		return code
	}
	return ExitUndone
}

// Serve builds a service and runs it until ctx or an actor ends, as Main does, also several in one process.
func Serve(ctx context.Context, env *Env, build func(context.Context) ([]Actor, error)) error {
	log := env.Logger.With(slog.String("component", "service"))
	log.Info("starting", slog.String("service", env.Name), slog.String("version", env.Version), slog.Int("pid", os.Getpid()),
		slog.String("config", cmp.Or(env.Config, "none")))

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	telemetryCtx, stopTelemetry := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelemetry()
	telemetryDone := make(chan error, 1)
	go func() {
		err := env.Run(telemetryCtx)
		if err != nil {
			cancel(err)
		}
		telemetryDone <- err
	}()

	err := buildAndRun(ctx, env, build, log)
	if errors.Is(context.Cause(ctx), errSignal) && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err == nil {
		log.Info("stopped")
	}
	stopTelemetry()
	return errors.Join(err, <-telemetryDone)
}

func buildAndRun(ctx context.Context, env *Env, build func(context.Context) ([]Actor, error), log *slog.Logger) error {
	actors, err := build(ctx)
	left := env.Budget
	if err != nil {
		err = fmt.Errorf("start: %w", err)
	} else {
		if !env.ReadySet() {
			env.SetReady(func(context.Context) error { return nil })
		}
		log.Info("started")
		g := group{actors: actors, budget: env.Budget, log: log, onStop: func() { stopping(env, log) }}
		left, err = g.run(ctx)
	}
	if errors.Is(err, ErrShutdownTimeout) {
		return err
	}
	return errors.Join(err, closeAll(env.closers, max(left, minClose), err))
}

// stopping makes the process not ready.
func stopping(env *Env, log *slog.Logger) {
	env.SetReady(func(context.Context) error { return errStopping })
	log.Info("stopping", slog.Duration("budget", env.Budget))
}
