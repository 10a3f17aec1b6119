package service

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/nearest"
)

// Errors of a configuration; field and the metadata key source say where.
var (
	ErrUnknownKey = errdefs.New(errdefs.InvalidArgument, "UNKNOWN_KEY", "unknown key")
	ErrBadValue   = errdefs.New(errdefs.InvalidArgument, "BAD_VALUE", "bad value")
	ErrConfigFile = errdefs.New(errdefs.InvalidArgument, "CONFIG_FILE", "the file cannot be used")
)

// sourceKey is the metadata key of where a value came from.
const sourceKey = "source"

// maxConfig bounds a configuration file.
const maxConfig = 1 << 20

// settings is a configuration being read.
type settings struct {
	root    []*field
	byKey   map[string]*field
	keys    []string // of the leaves, as declared
	sources map[string]string
	unset   string // the place of a key that is not set
	errs    []error
	docs    map[string]string // what keys mean
	foreign map[string]string // keys of others, and what takes their place
}

func newSettings(cfg any) (*settings, error) {
	v := reflect.ValueOf(cfg)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("a configuration is a pointer to a struct, not %T", cfg)
	}
	s := &settings{byKey: make(map[string]*field), sources: make(map[string]string), unset: "not set"}
	s.root = fieldsOf(v.Elem(), "")
	vars := make(map[string]string)
	var clash error
	leaves(s.root, func(f *field) {
		s.byKey[f.key] = f
		s.keys = append(s.keys, f.key)
		if other, ok := vars[envName(f.key)]; ok {
			clash = fmt.Errorf("keys %s and %s have one environment variable", other, f.key)
		}
		vars[envName(f.key)] = f.key
	})
	return s, clash
}

// load reads file (may be empty), environment and -set values in this order and returns all faults as one join.
func (s *settings) load(file, envPrefix string, environ, sets []string) error {
	if file != "" {
		s.unset = file + ", not set"
		s.loadFile(file)
	}
	s.loadEnv(envPrefix, environ)
	for _, set := range sets {
		s.loadSet(set)
	}
	return errors.Join(s.errs...)
}

func (s *settings) fail(e *errdefs.Error, key, source string) {
	s.errs = append(s.errs, e.WithField(key).With(sourceKey, source))
}

func (s *settings) loadFile(file string) {
	f, err := os.Open(file) //nolint:gosec // the operator names it
	if err != nil {
		s.errs = append(s.errs, ErrConfigFile.With(sourceKey, file).Wrap(err).WithRemedy("name another with -config"))
		return
	}
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		s.errs = append(s.errs, ErrConfigFile.With(sourceKey, file).Wrap(err).WithRemedy("name a YAML file with -config"))
	case len(text) > maxConfig:
		s.errs = append(s.errs, ErrConfigFile.With(sourceKey, file).WithMsg("the file is larger than %s", Size(maxConfig)))
	default:
		y := yamlReader{s: s, place: func(line int) string { return fmt.Sprintf("%s:%d", file, line) }}
		y.document(text)
	}
}

// serviceLink matches the variables that Kubernetes sets in every pod for a Service of a name like ours.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

func isServiceLink(name, value string) bool {
	return serviceLink.MatchString(name) || (strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"))
}

func (s *settings) loadEnv(prefix string, environ []string) {
	byVar := make(map[string]*field, len(s.byKey))
	for key, f := range s.byKey {
		byVar[prefix+envName(key)] = f
	}
	environ = slices.Sorted(slices.Values(environ))
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if rest, ok := strings.CutPrefix(name, "TANDEM_"); ok && byVar[prefix+rest] != nil {
			s.errs = append(s.errs, ErrUnknownKey.WithMsg("unknown environment variable").
				WithRemedy("did you mean %s?", prefix+rest).With(sourceKey, name))
		}
		if !strings.HasPrefix(name, prefix) || name == prefix+configVar {
			continue
		}
		if f, ok := byVar[name]; ok {
			s.setText(f, value, name)
			continue
		}
		if isServiceLink(name, value) {
			continue
		}
		e := ErrUnknownKey.WithMsg("unknown environment variable")
		var vars []string
		for v := range byVar {
			vars = append(vars, strings.TrimPrefix(v, prefix)) // what all begin with makes none near
		}
		slices.Sort(vars)
		if near := nearest.To(strings.TrimPrefix(name, prefix), vars); near != "" {
			e = e.WithRemedy("did you mean %s?", prefix+near)
		} else {
			e = e.WithRemedy("-print-config shows the keys")
		}
		s.errs = append(s.errs, e.With(sourceKey, name))
	}
}

func (s *settings) loadSet(set string) {
	key, value, ok := strings.Cut(set, "=")
	if !ok {
		s.errs = append(s.errs, ErrBadValue.WithMsg("wants key=value, not %q", set).With(sourceKey, "-set"))
		return
	}
	f, ok := s.byKey[key]
	if !ok {
		s.unknown(key, "-set")
		return
	}
	s.setText(f, value, "-set")
}

// unknown reports a key that does not exist.
func (s *settings) unknown(key, source string) {
	candidates := slices.Clone(s.keys)
	var structs func([]*field)
	structs = func(fields []*field) {
		for _, f := range fields {
			if f.sub != nil {
				candidates = append(candidates, f.key)
				structs(f.sub)
			}
		}
	}
	structs(s.root)
	if slices.Contains(candidates, key) {
		s.fail(ErrBadValue.WithMsg("has keys of its own").WithRemedy("set %s.<key>", key), key, source)
		return
	}
	if r := s.foreign[key]; r != "" {
		s.fail(ErrUnknownKey.WithMsg("is RocketMQ's").WithRemedy("%s", r), key, source)
		return
	}
	if near := nearest.To(key, candidates); near != "" {
		s.fail(ErrUnknownKey.WithRemedy("did you mean %s?", near), key, source)
		return
	}
	s.fail(ErrUnknownKey.WithRemedy("-print-config shows the keys"), key, source)
}

// setText sets a leaf from the text of a variable or flag: scalars as they are, lists as a,b or YAML.
func (s *settings) setText(f *field, text, source string) {
	if !isList(f.v.Type()) {
		if err := setScalar(f.v, text); err != nil {
			s.fail(ErrBadValue.WithMsg("%s", err.Error()), f.key, source)
			return
		}
		s.sources[f.key] = source
		return
	}
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "[") {
		y := yamlReader{s: s, place: func(int) string { return source }}
		y.value(f, text)
		return
	}
	var parts []string
	for part := range strings.SplitSeq(trimmed, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	fresh := reflect.MakeSlice(f.v.Type(), len(parts), len(parts))
	for i, part := range parts {
		if err := setScalar(fresh.Index(i), part); err != nil {
			s.fail(ErrBadValue.WithMsg("%s", err.Error()), fmt.Sprintf("%s[%d]", f.key, i), source)
			return
		}
	}
	f.v.Set(fresh)
	s.sources[f.key] = source
}

// sourceOf returns where the value of a key came from; a list element comes from where its list did, a section from where the
// first of its keys did.
func (s *settings) sourceOf(key string) string {
	for _, k := range s.keys {
		if source := s.sources[k]; source != "" && strings.HasPrefix(k, key+".") {
			return source
		}
	}
	for {
		if source, ok := s.sources[key]; ok {
			return source
		}
		i := strings.LastIndexAny(key, ".[")
		if i < 0 {
			return ""
		}
		key = key[:i]
	}
}
