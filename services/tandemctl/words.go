package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// plainWidth is the width of text where there is no terminal.
const plainWidth = 100

// columns returns the width of the terminal that f is, or 0.
func columns(f any) int {
	file, ok := fileOf(f)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ) //nolint:gosec // a descriptor fits an int
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// width returns how wide lines of text on f may be.
func width(f any) int {
	if n := columns(f); n > 0 {
		return max(n, 40)
	}
	return plainWidth
}

// lineWidth is width for what happened: without a terminal it stays one line, for those who search.
func lineWidth(f any) int {
	if columns(f) == 0 {
		return math.MaxInt
	}
	return width(f)
}

// fileOf returns the file behind what run wraps around it.
func fileOf(f any) (*os.File, bool) {
	switch w := f.(type) {
	case *sink:
		f = w.w
	case *input:
		f = w.r
	}
	file, ok := f.(*os.File)
	return file, ok
}

// wrap puts text behind lead and breaks its lines between words where they would be wider than limit; what follows the first
// line stands below the text's beginning. A longer word, such as a path or a command in back quotes, stays whole.
func wrap(lead, text string, limit int) string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(lead))
	var b strings.Builder
	for i, line := range strings.Split(text, "\n") {
		if i > 0 { // such as the last lines of a log, which have their own indent
			lead = "\n"
		}
		b.WriteString(lead)
		at := utf8.RuneCountInString(strings.TrimPrefix(lead, "\n"))
		for j, word := range words(line) {
			n := utf8.RuneCountInString(word)
			switch {
			case j == 0:
			case at+1+n > limit && at > len(indent):
				b.WriteString("\n" + indent)
				at = len(indent)
			default:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += n
		}
	}
	return b.String()
}

// words splits a line at its spaces, but not inside of back quotes: a command is copied as a whole.
func words(line string) []string {
	var all []string
	quoted := false
	from := 0
	for i, r := range line {
		switch {
		case r == '`':
			quoted = !quoted
		case r == ' ' && !quoted:
			all = append(all, line[from:i])
			from = i + 1
		}
	}
	return append(all, line[from:])
}

// middle shortens s to limit characters by its middle: names that begin alike may end apart.
func middle(s string, limit int) string {
	r := []rune(s)
	if len(r) <= limit {
		return s
	}
	tail := (limit - 1) / 3
	return string(r[:limit-1-tail]) + "…" + string(r[len(r)-tail:])
}

// hint writes commands in a text, which stand in back quotes, with the name by which this program was started.
func (a *app) hint(text string) string { return commands(text, a.name()) }

func commands(text, name string) string { return strings.ReplaceAll(text, "`tandemctl ", "`"+name+" ") }

// name is how the user starts this program.
func (a *app) name() string {
	if a.self == "" {
		return "tandemctl"
	}
	return shellWord(a.self)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord quotes s where a shell would take it apart.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// flagWords turns grpcx's names of the TLS settings into the flags that set them here.
var flagWords = strings.NewReplacer(
	"the server's caFile", "the server's caFile", // no flag sets it
	"set certFile and keyFile to a pair", "give --tls-cert and --tls-key a pair",
	"set certFile and keyFile", "give --tls-cert and --tls-key",
	"certFile and keyFile", "--tls-cert and --tls-key",
	"check caFile", "check --tls-ca",
	"caFile", "--tls-ca",
	"the name that the server's certificate was made for", "the name that the server's certificate was made for (--tls-server-name)",
	"set the TLS settings here too", "give --tls-ca (or --tls) here too",
	"drop the TLS settings here", "leave the --tls flags out here",
	"cert_file=", "--tls-cert=", "key_file=", "--tls-key=", "ca_file=", "--tls-ca=",
)

// aboutTLS reports whether an error speaks of this client's TLS settings.
func aboutTLS(e *errdefs.Error) bool {
	return e.Reason == client.ErrUnreachable.Reason || e.Reason == grpcx.ErrTLSFiles.Reason || e.Field == "tls" || strings.HasPrefix(e.Field, "tls.")
}

var largerThan = regexp.MustCompile(`(trying to send|received) message larger than max \((\d+) vs\. (\d+)\)`)

// tooLarge explains a message above a limit: this command's, or the storage's.
func (a *app) tooLarge(err error) (what string, next []string, ok bool) {
	e := errdefs.As(err)
	if e == nil || e.Reason != grpcx.ReasonMessageTooLarge {
		return "", nil, false
	}
	m := largerThan.FindStringSubmatch(e.Msg)
	if m == nil {
		return "", nil, false
	}
	size, sizeErr := strconv.ParseInt(m[2], 10, 64)
	limit, limitErr := strconv.ParseInt(m[3], 10, 64)
	if errors.Join(sizeErr, limitErr) != nil {
		return "", nil, false
	}
	if limit == int64(a.maxMessage) {
		return fmt.Sprintf("the message is too large: with all that comes with it %d bytes, and this command's limit is %d", size, limit),
			[]string{"allow more with --max-message " + enough(size)}, true
	}
	what = fmt.Sprintf("the message is too large for the storage: with all that comes with it %d bytes, and the limit there is %d", size, limit)
	if m[1] == "received" {
		return what, []string{"raise maxMessageSize in the storage's configuration, or send less at a time"}, true
	}
	return what, []string{"raise maxReplySize in the storage's configuration, or read less at a time with --max"}, true
}

// enough returns a round size, as --max-message takes it, that holds n bytes and some more.
func enough(n int64) string {
	mib := int64(1)
	for mib<<20 < n+n/16 {
		mib *= 2
	}
	return itoa(mib) + "MiB"
}

// byteSize is a flag's value in bytes, with or without a unit.
type byteSize int64

// String implements pflag.Value.
func (s *byteSize) String() string {
	n := int64(*s)
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 {
			return itoa(n/u.bytes) + u.name
		}
	}
	return itoa(n)
}

// Type implements pflag.Value.
func (*byteSize) Type() string { return "size" }

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// Set implements pflag.Value: 16MiB, 16M, 16777216.
func (s *byteSize) Set(text string) error {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		for _, name := range []string{u.name, u.name[:1] + "B", u.name[:1]} {
			if cut, ok := strings.CutSuffix(strings.ToUpper(number), strings.ToUpper(name)); ok && factor == 1 {
				number, factor = cut, u.bytes
			}
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return errors.New("write bytes, or a size such as 16MiB")
	}
	*s = byteSize(n * factor)
	return nil
}
