package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTimeout = 5 * time.Second
	readyTimeout  = 2 * time.Second
)

// DebugAddr returns where the debug listener listens, nil without one.
func (t *Telemetry) DebugAddr() net.Addr {
	if t.debug == nil {
		return nil
	}
	return t.debug.Addr()
}

// Run serves the debug listener until ctx ends, then shuts telemetry down within its budget. A collector is sent the first
// metrics at once: one that cannot be reached is news at the start.
func (t *Telemetry) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	if t.to != nil {
		wg.Go(func() { _ = t.meters.ForceFlush(ctx) }) // what failed was told
	}
	err := t.serveDebug(ctx)
	wg.Wait()
	return errors.Join(err, t.Shutdown(ctx))
}

func (t *Telemetry) serveDebug(ctx context.Context) error {
	if t.debug == nil {
		<-ctx.Done()
		return nil
	}
	srv := &http.Server{
		Handler:           t.debugHandler(),
		ReadHeaderTimeout: headerTimeout,
		ErrorLog:          slog.NewLogLogger(t.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(t.debug) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve debug listener: %w", err)
	case <-ctx.Done():
	}
	err := srv.Close() // a profile or scrape under way has no claim on the shutdown's budget
	if serveErr := <-served; err == nil && !errors.Is(serveErr, http.ErrServerClosed) {
		err = serveErr
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close debug listener: %w", err)
	}
	return nil
}

func (t *Telemetry) debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{Registry: t.registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", t.serveReady)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "/metrics\n/healthz\n/readyz\n/debug/pprof/")
	})
	return mux
}

func (t *Telemetry) serveReady(w http.ResponseWriter, r *http.Request) {
	ready := t.ready.Load()
	if ready == nil {
		answer(w, http.StatusServiceUnavailable, "starting")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := (*ready)(ctx); err != nil {
		answer(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	answer(w, http.StatusOK, "ok")
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // the client is gone: nobody is left to tell
}
