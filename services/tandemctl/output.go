package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// sink remembers the first failure to write, so that not every line has to be asked.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}

// sayf writes text; a failure is told at the end by the sink below.
func sayf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// say writes a line as fmt.Fprintln does.
func say(w io.Writer, args ...any) { _, _ = fmt.Fprintln(w, args...) }

// table writes rows under a header in aligned columns.
func table(w io.Writer, header []string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{header}, rows...) {
		say(tw, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	_ = tw.Flush() // nobody to tell
}

// stream writes rows one by one, under a header that comes with the first, in columns of fixed width.
type stream struct {
	w      io.Writer
	header []string
	widths []int
	begun  bool
}

func (s *stream) row(cells ...string) {
	if !s.begun {
		s.begun = true
		s.line(s.header)
	}
	s.line(cells)
}

func (s *stream) line(cells []string) {
	var b strings.Builder
	for i, c := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		b.WriteString(c)
		if i < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", max(0, s.widths[i]-utf8.RuneCountInString(c))))
		}
	}
	say(s.w, strings.TrimRight(b.String(), " "))
}

// printProto writes a message as one line of JSON; 64-bit numbers are strings.
func printProto(w io.Writer, m proto.Message) error {
	b, err := protoJSON(m)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

// protoJSON is protojson without the spaces that it strews in at random.
func protoJSON(m proto.Message) ([]byte, error) {
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, b)
	return out.Bytes(), err
}

// printJSON writes v as one line of JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func itoa[N int | int32 | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// sizeText writes bytes as people do: 512 B, 1.5 MiB.
func sizeText(n int64) string {
	const unit = 1024
	if n < unit && n > -unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n), -1
	for (v >= unit || v <= -unit) && i < 4 {
		v /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}

// ago writes how long before now t was.
func ago(now, t time.Time) string {
	if t.IsZero() || t.Unix() == 0 {
		return "never"
	}
	return shortDuration(now.Sub(t)) + " ago"
}

// shortDuration writes two significant units at most: 850ms, 2.5s, 3m10s, 5h2m.
func shortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	default:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
}

// stamp writes milliseconds since 1970 as UTC.
func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.000") }

// preview makes body printable on one line of at most limit characters; 0 is no limit.
func preview(body []byte, limit int) string {
	if limit > 0 && len(body) > 4*limit {
		body = body[:4*limit]
	}
	s := string(body)
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		s = strconv.Quote(s)
	}
	if r := []rune(s); limit > 0 && len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

// are writes "no slave is", "1 slave is", "2 slaves are".
func are(n int, one string) string {
	switch n {
	case 0:
		return "no " + one + " is"
	case 1:
		return plural(n, one) + " is"
	}
	return plural(n, one) + " are"
}

// plural writes "1 message", "2 messages".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return itoa(n) + " " + one + "s"
}
