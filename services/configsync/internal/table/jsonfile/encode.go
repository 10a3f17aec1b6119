package jsonfile

import (
	"slices"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// within says under which key an error was found.
func within(key string, err error) error {
	if e := errdefs.As(err); e != nil {
		return e.With("key", key[:min(len(key), 200)])
	}
	return err
}

// AppendFile appends the table as RocketMQ's file has it.
func AppendFile(b []byte, t *table.Table) []byte { return appendTable(b, t, true, t.Form()) }

// AppendWire appends the table as RocketMQ's remoting answers have it. The version is always there: a slave of version 5
// wants one.
func AppendWire(b []byte, t *table.Table) []byte {
	return appendTable(b, t, false, min(t.Form(), table.FormNoState))
}

func appendTable(b []byte, t *table.Table, pretty bool, form table.Form) []byte {
	w := fastjson.NewWriter(b, pretty)
	w.Begin()
	fields := append([]entry.Field{}, t.Unknown()...)
	fields = entry.SetField(fields, entry.Field{Name: tableField(t.Kind())})
	if t.Derived() != "" {
		fields = entry.SetField(fields, entry.Field{Name: table.DerivedField, Raw: t.Derived()})
	}
	if form != table.FormNoVersion {
		fields = entry.SetField(fields, entry.Field{Name: versionField})
	}
	for _, f := range fields {
		w.Key(f.Name)
		switch f.Name {
		case versionField:
			writeVersion(w, t.Version(), form)
		case tableField(t.Kind()):
			writeEntries(w, t)
		default:
			w.Raw(f.Raw)
		}
	}
	w.End()
	return w.Bytes()
}

func writeVersion(w *fastjson.Writer, v entry.Version, form table.Form) {
	w.Begin()
	w.Key("counter")
	w.Int(v.Counter)
	if form == table.FormFull {
		w.Key("stateVersion")
		w.Int(v.State)
	}
	w.Key("timestamp")
	w.Int(v.Timestamp)
	w.End()
}

func writeEntries(w *fastjson.Writer, t *table.Table) {
	w.Begin()
	if t.Kind() == entry.DelayOffsets {
		writeDelays(w, t)
		w.End()
		return
	}
	for e := range t.Ascend("") {
		switch v := e.Value.(type) {
		case *entry.TopicConfig:
			w.Key(e.Key)
			v.Write(w)
		case *entry.GroupConfig:
			w.Key(e.Key)
			v.Write(w)
		case *entry.Offsets:
			if v.Visible() {
				w.Key(e.Key)
				v.Write(w)
			}
		}
	}
	w.End()
}

// writeDelays writes the levels in the order of their numbers.
func writeDelays(w *fastjson.Writer, t *table.Table) {
	levels := make([]int32, 0, t.Len())
	for e := range t.Ascend("") {
		level, _ := entry.ParseDelayKey(e.Key)
		levels = append(levels, level)
	}
	slices.Sort(levels)
	for _, level := range levels {
		d, _ := t.Delay(level)
		if (entry.QueueOffset{Epoch: d.Epoch, Offset: d.Offset}).Present() {
			w.IntKey(int64(level))
			w.Int(d.Offset)
		}
	}
}
