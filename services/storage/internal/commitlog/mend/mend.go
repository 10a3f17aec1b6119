package mend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// Note is the file of a repair under way, below the folder of a storage.
const Note = "tandem/repair"

const keptDir = "repair"

// ErrFull says that the bytes to be replaced do not fit into the space for them. Nothing was changed.
var ErrFull = errdefs.New(errdefs.ResourceExhausted, "REPAIR_FULL", "what a repair would replace does not fit beside the log").
	WithRemedy("remove old files below repair/, or raise ha.rollbackKeep")

// Repair is one replacement: Data goes to [From, To) of the log, all in one file of it.
type Repair struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Kept string `json:"kept"` // name of the file with what stood there
	Data []byte `json:"-"`
}

// Half reports whether have, the bytes that stand in r's range after a crash, can be what the crash left of r: each is what it
// was before or what it was to become. Where nobody knows what it was any more, sound records are not.
func Half(fsys vfs.FS, root string, r Repair, have []byte, fileEnd int64) (bool, error) {
	old, err := durable.ReadFile(fsys, filepath.Join(root, keptDir, filepath.Base(r.Kept)))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(old) != len(have) {
		return Sound(have, r.From, fileEnd) != nil, nil
	}
	if err != nil {
		return false, fmt.Errorf("read what a repair replaced: %w", err)
	}
	for i, b := range have {
		if b != old[i] && b != r.Data[i] {
			return false, nil
		}
	}
	return true, nil
}

func note(root string) string { return filepath.Join(root, filepath.FromSlash(Note)) }

// Announce writes r down. When the error is vfs.ErrNoSpace no note is there; after any other it may be.
func Announce(fsys vfs.FS, root string, r Repair) error {
	head, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode repair: %w", err)
	}
	name := note(root)
	err = durable.MkdirAll(fsys, filepath.Dir(name))
	if err == nil {
		err = durable.WriteChecked(fsys, name, bytes.Join([][]byte{head, r.Data}, []byte("\n")))
	}
	if errors.Is(err, vfs.ErrNoSpace) {
		if werr := Withdraw(fsys, root); werr != nil {
			return fmt.Errorf("announce repair: %w", werr)
		}
	}
	if err != nil {
		return fmt.Errorf("announce repair: %w", err)
	}
	return nil
}

// Withdraw removes the note, durably.
func Withdraw(fsys vfs.FS, root string) error {
	name := note(root)
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove note of a repair: %w", err)
	}
	return nil
}

// Pending returns the repair that a crash interrupted, nil when there is none. The error is durable.ErrCorrupt when the note
// is not what was written: then nobody knows what was to be replaced, and the note may go.
func Pending(fsys vfs.FS, root string) (*Repair, error) {
	data, source, err := durable.ReadChecked(fsys, note(root))
	if errors.Is(err, fs.ErrNotExist) || err == nil && source != durable.Main { // a backup is of a repair that has ended
		return nil, nil //nolint:nilnil // no repair, no error
	}
	if err != nil {
		return nil, fmt.Errorf("read note of a repair: %w", err)
	}
	head, body, _ := bytes.Cut(data, []byte("\n"))
	r := &Repair{Data: body}
	if err := json.Unmarshal(head, r); err != nil || r.To-r.From != int64(len(body)) || r.From < 0 {
		return nil, durable.ErrCorrupt.With("file", Note).Wrap(err)
	}
	return r, nil
}

// Sound reports whether b, the bytes of a log from offset at on up to the end of a record, are sound records side by side,
// and at most a blank one, or a rest too small for it, at the end of the file.
func Sound(b []byte, at, fileEnd int64) error {
	end := at + int64(len(b))
	for at < end {
		size, kind, err := message.Check(b, at, message.CheckOptions{CRC: true, Offset: true})
		switch {
		case err != nil:
			return err //nolint:wrapcheck // names offset and field
		case kind == message.Blank && at+int64(size) != fileEnd:
			return &message.CorruptError{Offset: at, Field: "blankSize", Want: fileEnd - at, Got: int64(size)}
		case kind == message.End && (end != fileEnd || end-at >= message.BlankSize):
			return message.ErrCorrupt.With("offset", at).WithMsg("there is no record, only zeros")
		case kind == message.End:
			return nil
		}
		at += int64(size)
		b = b[size:]
	}
	return nil
}

// Kept is a range whose bytes were replaced, kept in repair/<Name>.
type Kept struct {
	Name     string // <from>-<to>-<n>, the n-th of that range
	From, To int64
	Bytes    int64
}

// Keep writes old, the bytes from offset from on that are about to be replaced, beside the log, durably. All that is kept
// may take limit bytes: else ErrFull.
func Keep(fsys vfs.FS, root string, from int64, old []byte, limit int64) (Kept, error) {
	all, err := List(fsys, root)
	if err != nil {
		return Kept{}, err
	}
	k := Kept{From: from, To: from + int64(len(old)), Bytes: int64(len(old))}
	have, n := int64(0), 0
	for _, o := range all {
		have += o.Bytes
		if o.From == k.From && o.To == k.To {
			_, num, _ := parse(o.Name)
			n = max(n, num+1)
		}
	}
	if have+k.Bytes > limit {
		return k, ErrFull.With("need", k.Bytes).With("kept", have).With("limit", limit)
	}
	k.Name = fmt.Sprintf("%d-%d-%d", k.From, k.To, n)
	dir := filepath.Join(root, keptDir)
	if err = durable.MkdirAll(fsys, dir); err == nil {
		err = durable.WriteFile(fsys, filepath.Join(dir, k.Name), old)
	}
	if err != nil {
		return k, fmt.Errorf("keep [%d, %d): %w", k.From, k.To, err)
	}
	return k, nil
}

// List lists what was kept in the folder of a storage, by name.
func List(fsys vfs.FS, root string) ([]Kept, error) {
	infos, err := fsys.ReadDir(filepath.Join(root, keptDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list repairs: %w", err)
	}
	var all []Kept
	for _, info := range infos {
		if k, _, ok := parse(info.Name); ok && !info.Dir {
			k.Bytes = info.Size
			all = append(all, k)
		}
	}
	return all, nil
}

func parse(name string) (k Kept, n int, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 3 {
		return k, 0, false
	}
	var err1, err2, err3 error
	k.Name = name
	k.From, err1 = strconv.ParseInt(parts[0], 10, 64)
	k.To, err2 = strconv.ParseInt(parts[1], 10, 64)
	n, err3 = strconv.Atoi(parts[2])
	return k, n, errors.Join(err1, err2, err3) == nil && k.From < k.To
}
