package service

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// yamlReader sets fields from a YAML tree.
type yamlReader struct {
	s     *settings
	place func(line int) string
}

func line(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

func (y *yamlReader) bad(n ast.Node, key, format string, args ...any) {
	y.s.fail(ErrBadValue.WithMsg(format, args...), key, y.place(line(n)))
}

// parse returns the root of the one document in text, nil when it is empty or broken (reported).
func (y *yamlReader) parse(text []byte) ast.Node {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		at, msg := 1, err.Error()
		var ye yaml.Error
		if errors.As(err, &ye) {
			msg = ye.GetMessage()
			if t := ye.GetToken(); t != nil && t.Position != nil {
				at = t.Position.Line
			}
		}
		y.s.fail(ErrConfigFile.WithMsg("not valid YAML: %s", msg), "", y.place(at))
		return nil
	}
	var root ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.NullType || doc.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			y.s.fail(ErrConfigFile.WithMsg("more than one YAML document"), "", y.place(line(doc.Body)))
			return nil
		}
		root = doc.Body
	}
	return root
}

func (y *yamlReader) document(text []byte) {
	root := y.parse(text)
	if root == nil {
		return
	}
	if text, ok := scalarText(root); ok && strings.Contains(text, "=") {
		y.s.fail(ErrConfigFile.WithMsg("these look like RocketMQ's properties (key=value)").WithRemedy("write YAML: key: value"), "", y.place(line(root)))
		return
	}
	y.fields(root, y.s.root, "")
}

// value sets one leaf from YAML text.
func (y *yamlReader) value(f *field, text string) {
	if root := y.parse([]byte(text)); root != nil {
		y.set(root, f.v, f.key)
	}
}

// fields sets the fields of a struct from a mapping.
func (y *yamlReader) fields(n ast.Node, fields []*field, prefix string) {
	if n.Type() == ast.NullType {
		return // a section whose keys are all commented out
	}
	m, ok := n.(ast.MapNode)
	if !ok {
		y.bad(n, prefix, "wants keys of its own, not %s", describe(n))
		return
	}
	for it := m.MapRange(); it.Next(); {
		name, ok := keyName(it.Key())
		if !ok {
			y.bad(it.Value(), prefix, "anchors, aliases and merge keys are not supported")
			continue
		}
		y.oneField(it, fields, join(prefix, name), name)
	}
}

func (y *yamlReader) oneField(it *ast.MapNodeIter, fields []*field, key, name string) {
	for _, f := range fields {
		switch {
		case f.name != name:
		case f.sub != nil:
			y.fields(it.Value(), f.sub, f.key)
			return
		default:
			y.set(it.Value(), f.v, f.key)
			return
		}
	}
	y.s.unknown(key, y.place(line(it.Key())))
}

func keyName(k ast.MapKeyNode) (string, bool) {
	if k.IsMergeKey() {
		return "", false
	}
	switch k.Type() {
	case ast.AnchorType, ast.AliasType, ast.TagType:
		return "", false
	default:
		if t := k.GetToken(); t != nil {
			return t.Value, true
		}
		return "", false
	}
}

// set sets a value from a node and notes its source. It is all or nothing for lists.
func (y *yamlReader) set(n ast.Node, v reflect.Value, key string) {
	before := len(y.s.errs)
	fresh := reflect.New(v.Type()).Elem()
	y.into(n, fresh, key)
	if len(y.s.errs) == before {
		v.Set(fresh)
		y.s.sources[key] = y.place(line(n))
	}
}

func (y *yamlReader) into(n ast.Node, v reflect.Value, key string) {
	switch n.Type() {
	case ast.AnchorType, ast.AliasType, ast.TagType:
		y.bad(n, key, "anchors, aliases and tags are not supported")
		return
	case ast.NullType:
		y.bad(n, key, "has no value")
		return
	default: // a value
	}
	if isList(v.Type()) {
		y.list(n, v, key)
		return
	}
	text, ok := scalarText(n)
	if !ok {
		hint := ""
		if n.Type() == ast.MappingValueType || n.Type() == ast.MappingType {
			hint = "; put a text with a colon, as host:port, in quotes"
		}
		y.bad(n, key, "wants one value, not %s%s", describe(n), hint)
		return
	}
	if err := setScalar(v, text); err != nil {
		y.bad(n, key, "%s", err.Error())
	}
}

func (y *yamlReader) list(n ast.Node, v reflect.Value, key string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		y.bad(n, key, "wants a list, not %s; write [a, b]", describe(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, one := range seq.Values {
		y.into(one, v.Index(i), fmt.Sprintf("%s[%d]", key, i))
	}
}

// scalarText returns a scalar as it was written, without quotes.
func scalarText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func describe(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a map"
	case ast.SequenceType:
		return "a list"
	default:
		if text, ok := scalarText(n); ok {
			return fmt.Sprintf("the value %q", text)
		}
		return "this"
	}
}
