package entry

import (
	"slices"

	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// FieldDifference is a JSON field that two configs say differently; empty where one has it not.
type FieldDifference struct{ Name, Left, Right string }

// Differences returns the fields in which two topics or two groups differ.
func Differences(left, right Value) []FieldDifference {
	switch l := left.(type) {
	case *TopicConfig:
		if r, ok := right.(*TopicConfig); ok {
			return differences(topicProperties, l, r, l.Unknown, r.Unknown)
		}
	case *GroupConfig:
		if r, ok := right.(*GroupConfig); ok {
			return differences(groupProperties, l, r, l.Unknown, r.Unknown)
		}
	}
	return nil
}

func differences[T any](props []property[T], l, r *T, lu, ru []Field) []FieldDifference {
	var out []FieldDifference
	add := func(name, left, right string) {
		if left != right {
			out = append(out, FieldDifference{Name: name, Left: left, Right: right})
		}
	}
	for i := range props {
		add(props[i].name, written(&props[i], l), written(&props[i], r))
	}
	for _, f := range lu {
		add(f.Name, f.Raw, GetField(ru, f.Name))
	}
	for _, f := range ru {
		if !slices.ContainsFunc(lu, func(o Field) bool { return o.Name == f.Name }) {
			add(f.Name, "", f.Raw)
		}
	}
	return out
}

func written[T any](p *property[T], v *T) string {
	w := fastjson.NewWriter(nil, false)
	p.write(w, v)
	return string(w.Bytes())
}
