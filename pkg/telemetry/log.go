package telemetry

import (
	"context"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger makes the logger of a process. Records that are logged with the context of a span carry trace_id and span_id.
func NewLogger(c *Config) *slog.Logger {
	var level slog.Level
	switch c.LogLevel {
	case Debug:
		level = slog.LevelDebug
	case Warn:
		level = slog.LevelWarn
	case Error:
		level = slog.LevelError
	}
	w := c.LogWriter
	if w == nil {
		w = os.Stderr
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.LogFormat == JSON {
		return slog.New(spanHandler{slog.NewJSONHandler(w, opts)})
	}
	return slog.New(spanHandler{slog.NewTextHandler(w, opts)})
}

// spanHandler adds the ids of the context's span.
type spanHandler struct{ slog.Handler }

func (h spanHandler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h spanHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return spanHandler{h.Handler.WithAttrs(attrs)}
}

func (h spanHandler) WithGroup(name string) slog.Handler {
	return spanHandler{h.Handler.WithGroup(name)}
}
