package epoch

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrBadLineage is a lineage file that this version did not write.
var ErrBadLineage = errdefs.New(errdefs.DataLoss, "BAD_LINEAGE", "the lineage file cannot be read")

// Versions: the first one did not name the store.
const (
	lineageVersion = "lineage 2"
	firstVersion   = "lineage 1"
)

// MarshalText returns l in the format of FORMAT.md.
func (l Lineage) MarshalText() ([]byte, error) {
	b := []byte(lineageVersion + "\n")
	b = fmt.Appendf(b, "role %s\n", l.Role)
	b = fmt.Appendf(b, "promise %d %016x\n", l.Promise.Epoch, uint64(l.Promise.ID))
	b = fmt.Appendf(b, "candidate %d %016x\n", l.Candidate.Epoch, uint64(l.Candidate.ID))
	b = fmt.Appendf(b, "empty %t\nunclean %t\nopen %t\nsync-flush %t\n", l.Empty, l.Unclean, l.Open, l.SyncFlush)
	b = fmt.Appendf(b, "boot %q\nheld %d\n", l.Boot, l.Held)
	b = fmt.Appendf(b, "cluster %q\nbroker %q\nfile-size %d\n", l.Cluster, l.BrokerName, l.FileSize)
	for _, e := range l.Epochs {
		b = fmt.Appendf(b, "epoch %d %d %016x\n", e.Epoch, e.Start, uint64(e.ID))
	}
	return append(b, "end\n"...), nil
}

// UnmarshalText reads what MarshalText wrote; ErrBadLineage names the line.
func (l *Lineage) UnmarshalText(text []byte) error {
	lines := strings.Split(string(bytes.TrimSuffix(text, []byte("\n"))), "\n")
	p := parser{keys: keys[:]}
	switch lines[0] {
	case lineageVersion:
	case firstVersion:
		p.keys = keys[:firstKeys]
	default:
		return ErrBadLineage.With("line", 1).WithRemedy("the file is of another version: run the version that wrote it")
	}
	for i, line := range lines[1:] {
		if err := p.line(line); err != nil {
			return ErrBadLineage.With("line", i+2).Wrap(err)
		}
	}
	if err := p.finish(); err != nil {
		return ErrBadLineage.Wrap(err)
	}
	*l = p.l
	return nil
}

// keys of the lines that stand in front of the list, in their order.
var keys = [...]string{"role", "promise", "candidate", "empty", "unclean", "open", "sync-flush", "boot", "held", "cluster", "broker", "file-size"} //nolint:gochecknoglobals // a table

// firstKeys is how many of them the first version has.
const firstKeys = 9

type parser struct {
	l    Lineage
	keys []string // of this version
	n    int      // lines read
	done bool
}

func (p *parser) line(s string) error {
	key, rest, _ := strings.Cut(s, " ")
	switch {
	case p.done:
		return fmt.Errorf("%q behind the end", s)
	case p.n < len(p.keys):
		if key != p.keys[p.n] {
			return fmt.Errorf("%q where %q belongs", key, p.keys[p.n])
		}
		p.n++
		return p.field(key, rest)
	case s == "end":
		p.done = true
		return nil
	case key == "epoch":
		var e Entry
		if err := scan(rest, &e.Epoch, &e.Start, &e.ID); err != nil {
			return err
		}
		p.l.Epochs = append(p.l.Epochs, e)
		return nil
	}
	return fmt.Errorf("unknown key %q", key)
}

func (p *parser) field(key, rest string) (err error) {
	l := &p.l
	switch key {
	case "role":
		for r, name := range roleNames {
			if name == rest && Role(r) != RoleUnset {
				l.Role = Role(r)
				return nil
			}
		}
		return fmt.Errorf("unknown role %q", rest)
	case "promise":
		return scan(rest, &l.Promise.Epoch, &l.Promise.ID)
	case "candidate":
		return scan(rest, &l.Candidate.Epoch, &l.Candidate.ID)
	case "empty":
		return scan(rest, &l.Empty)
	case "unclean":
		return scan(rest, &l.Unclean)
	case "open":
		return scan(rest, &l.Open)
	case "sync-flush":
		return scan(rest, &l.SyncFlush)
	case "boot":
		l.Boot, err = strconv.Unquote(rest)
	case "cluster":
		l.Cluster, err = strconv.Unquote(rest)
	case "broker":
		l.BrokerName, err = strconv.Unquote(rest)
	case "file-size":
		return scan(rest, &l.FileSize)
	default:
		return scan(rest, &l.Held)
	}
	return err
}

// finish checks what no single line shows.
func (p *parser) finish() error {
	switch {
	case !p.done:
		return fmt.Errorf("it has no last line")
	case p.l.Promise.Epoch < 0 || p.l.Candidate.Epoch < 0 || p.l.Held < 0 || p.l.FileSize < 0:
		return fmt.Errorf("a number is negative")
	}
	return p.l.Epochs.Check()
}

// scan reads words separated by one blank.
func scan(s string, dst ...any) error {
	words := strings.Split(s, " ")
	if len(words) != len(dst) {
		return fmt.Errorf("%d words where %d belong", len(words), len(dst))
	}
	for i, d := range dst {
		var err error
		switch d := d.(type) {
		case *int64:
			*d, err = strconv.ParseInt(words[i], 10, 64)
		case *ID:
			var v uint64
			v, err = strconv.ParseUint(words[i], 16, 64)
			*d = ID(v)
		case *bool:
			*d, err = strconv.ParseBool(words[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
