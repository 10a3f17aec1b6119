package service

import (
	"encoding"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/tandemlog/tandem/pkg/telemetry"
)

// docsOf adds the keys of Common to docs.
func docsOf(docs map[string]string) map[string]string {
	all := maps.Clone(docs)
	all["shutdownTimeout"] = "bounds a stop; 0: 9s, below the ten seconds after which container engines kill"
	for key, doc := range telemetry.Docs {
		all["telemetry."+key] = doc
	}
	return all
}

// Undocumented returns the keys of a configuration that docs says nothing of, and those that only docs has.
func Undocumented(cfg any, docs map[string]string) (keys []string, err error) {
	s, err := newSettings(cfg)
	all := docsOf(docs)
	for _, key := range s.keys {
		if all[key] == "" {
			keys = append(keys, key)
		}
		delete(all, key)
	}
	return slices.AppendSeq(keys, maps.Keys(all)), err
}

// print writes the configuration as YAML that load reads back, with the source of each value that is not a default, and what each
// key means.
func (s *settings) print(w io.Writer) error { return s.printFields(w, s.root, "") }

func (s *settings) printFields(w io.Writer, fields []*field, indent string) error {
	for _, f := range fields {
		if f.sub != nil {
			if _, err := fmt.Fprintf(w, "%s%s:\n", indent, f.name); err != nil {
				return err
			}
			if err := s.printFields(w, f.sub, indent+"  "); err != nil {
				return err
			}
			continue
		}
		text, err := yaml.MarshalWithOptions(plain(f.v), yaml.Flow(true))
		if err != nil {
			return fmt.Errorf("write %s: %w", f.key, err)
		}
		source, doc := "", s.docs[f.key]
		if doc != "" {
			doc = indent + "# " + doc + "\n"
		}
		if from := s.sources[f.key]; from != "" {
			source = "  # " + from
		}
		if _, err := fmt.Fprintf(w, "%s%s%s: %s%s\n", doc, indent, f.name, strings.TrimSpace(string(text)), source); err != nil {
			return err
		}
	}
	return nil
}

// plain turns a value into what YAML writes as load reads it.
func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.String()
	case encoding.TextMarshaler:
		if text, err := x.MarshalText(); err == nil {
			return string(text)
		}
	}
	if v.Kind() != reflect.Slice {
		return v.Interface()
	}
	out := make([]any, v.Len())
	for i := range out {
		out[i] = plain(v.Index(i))
	}
	return out
}
