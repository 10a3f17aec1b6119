package frame

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// whole returns a frame with its body.
func whole(c *Command, body string) []byte { return append(Append(nil, c, len(body)), body...) }

// parse reads a whole frame.
func parse(b []byte) (*Command, string, error) {
	p, err := ParsePrefix(b, DefaultMaxFrame)
	if err != nil {
		return nil, "", err
	}
	if len(b) != PrefixSize+p.Header+p.Body {
		return nil, "", errors.New("the lengths are not those of the frame")
	}
	c, err := Parse(p.Encoding, b[PrefixSize:PrefixSize+p.Header])
	return c, string(b[PrefixSize+p.Header:]), err
}

func equal(a, b *Command) bool {
	x, y := *a, *b
	x.Fields, y.Fields = nil, nil
	return x.Encoding == y.Encoding && x.Code == y.Code && x.Language == y.Language && x.Version == y.Version && x.Opaque == y.Opaque &&
		x.Flag == y.Flag && x.Remark == y.Remark && maps.Equal(a.Fields, b.Fields)
}

// TestFormatExamples: each example of FORMAT.md is what Append writes and what Parse reads.
func TestFormatExamples(t *testing.T) {
	doc, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]struct {
		c    *Command
		body string
	}{
		"request, JSON": {&Command{Code: 43, Language: Go, Opaque: 1, Version: 407}, ""},
		"answer, JSON":  {&Command{Language: Java, Opaque: 1, Flag: FlagResponse, Version: 407}, `{"offsetTable":{}}`},
		"error, JSON, with fields": {&Command{
			Code: 1, Language: Java, Opaque: 2, Flag: FlagResponse, Version: 479, Remark: "no", Fields: map[string]string{"b": "2", "a": ""},
		}, ""},
		"request, binary": {&Command{Encoding: Binary, Code: 21, Language: Java, Version: 479, Opaque: 3}, ""},
		"error, binary, with fields": {&Command{
			Encoding: Binary, Code: 1, Language: Java, Version: 479, Opaque: 3, Flag: FlagResponse, Remark: "no", Fields: map[string]string{"a": "1"},
		}, ""},
	}
	for title, x := range examples {
		_, text, found := strings.Cut(string(doc), "\n"+title+"\n")
		text, _, _ = strings.Cut(text, "\n\n")
		text, _, _ = strings.Cut(text, "\n```")
		want, err := hex.DecodeString(strings.ReplaceAll(text, "\n", ""))
		if err != nil || !found {
			t.Errorf("%s: %v", title, err)
		}
		if got := whole(x.c, x.body); string(got) != string(want) {
			t.Errorf("%s: %x", title, got)
		}
		c, body, err := parse(want)
		if err != nil || !equal(c, x.c) || body != x.body {
			t.Errorf("%s: %+v, %q, %v", title, c, body, err)
		}
	}
	if n := strings.Count(string(doc), "\n000000"); n != len(examples) {
		t.Errorf("%d examples are there, %d are tested", n, len(examples))
	}
}

// TestForms: the forms in which clients write JSON headers.
func TestForms(t *testing.T) {
	for text, want := range map[string]Command{
		`{"code":21}`:                      {Code: 21, Language: Other},
		`{"code":"21","opaque":"7"}`:       {Code: 21, Opaque: 7, Language: Other},
		` { "opaque" : 7 , "code" : 21 } `: {Code: 21, Opaque: 7, Language: Other},
		`{"code":21,"extFields":null,"remark":null,"language":null}`:         {Code: 21, Language: Other},
		`{"code":21,"extFields":{}}`:                                         {Code: 21, Language: Other},
		`{"code":21,"extFields":{"a":1,"b":true,"c":"x","d":null}}`:          {Code: 21, Language: Other, Fields: map[string]string{"a": "1", "b": "true", "c": "x"}},
		`{"code":21,"extFields":{1:"x"}}`:                                    {Code: 21, Language: Other, Fields: map[string]string{"1": "x"}},
		`{"code":21,"language":"COBOL","later":[{"x":1}]}`:                   {Code: 21, Language: Other},
		`{"code":-1,"language":"RUST","flag":2,"version":0,"opaque":-5}`:     {Code: -1, Language: 12, Flag: FlagOneWay, Opaque: -5},
		`{"code":1,"language":8,"remark":"a\u00e4\n\"","extFields":{"":""}}`: {Code: 1, Language: Other, Remark: "aä\n\"", Fields: map[string]string{"": ""}},
	} {
		c, err := Parse(JSON, []byte(text))
		if err != nil || !equal(c, &want) {
			t.Errorf("%s: %+v, %v", text, c, err)
		}
	}
	for _, text := range []string{
		"", "{}", "[]", "null", `{"code":21`, `{"code":21}x`, `{"code":null}`, `{"code":"x"}`, `{"code":2147483648}`, `{"code":1.5}`, `{"code":[1]}`,
		`{"code":21,"extFields":[]}`, `{"code":21,"opaque":{}}`, "{\"code\":21,\"remark\":\"\xff\"}",
	} {
		if c, err := Parse(JSON, []byte(text)); !errors.Is(err, ErrHeader) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

func TestBinaryCutAnywhere(t *testing.T) {
	c := &Command{Encoding: Binary, Code: 1, Remark: "remark", Fields: map[string]string{"key": "value", "other": ""}}
	b := Append(nil, c, 0)[PrefixSize:]
	for n := range b {
		if got, err := Parse(Binary, b[:n]); !errors.Is(err, ErrHeader) {
			t.Errorf("the first %d of %d bytes are %+v, %v", n, len(b), got, err)
		}
	}
	if _, err := Parse(Binary, append(b, 0)); !errors.Is(err, ErrHeader) {
		t.Errorf("with a byte behind its end: %v", err)
	}
	huge := append([]byte(nil), b...)
	binary.BigEndian.PutUint32(huge[13:], 1<<31-1) // the remark's length
	if _, err := Parse(Binary, huge); !errors.Is(err, ErrHeader) {
		t.Errorf("a remark of 2 GiB: %v", err)
	}
}

func TestPrefix(t *testing.T) {
	prefix := func(length, second uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, length), second)
	}
	for name, x := range map[string]struct {
		b    []byte
		want Prefix
		err  error
		like string
	}{
		"least":                  {b: prefix(4, 0)},
		"binary with body":       {b: prefix(4+5+6, 1<<24|5), want: Prefix{Encoding: Binary, Header: 5, Body: 6}},
		"largest":                {b: prefix(DefaultMaxFrame, 100), want: Prefix{Header: 100, Body: DefaultMaxFrame - 104}},
		"too large":              {b: prefix(DefaultMaxFrame+1, 100), err: ErrLength},
		"negative":               {b: prefix(1<<31, 100), err: ErrLength},
		"zero":                   {b: prefix(0, 0), err: ErrLength},
		"three":                  {b: prefix(3, 0), err: ErrLength},
		"header beyond frame":    {b: prefix(100, 97), err: ErrLength},
		"header beyond bound":    {b: prefix(1<<20, MaxHeader+1), err: ErrLength},
		"type 2":                 {b: prefix(100, 2<<24|50), err: ErrType},
		"TLS":                    {b: []byte{0x16, 3, 1, 2, 0, 1, 0, 1}, err: ErrLength, like: "TLS"},
		"HTTP":                   {b: []byte("GET / HT"), err: ErrLength, like: "text"},
		"the log's raw protocol": {b: prefix(0, 1024), err: ErrLength},
	} {
		got, err := ParsePrefix(x.b, DefaultMaxFrame)
		if got != x.want || !errors.Is(err, x.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if e := errdefs.As(err); e != nil && e.Meta["looks_like"] != x.like {
			t.Errorf("%s: looks like %q", name, e.Meta["looks_like"])
		}
	}
}

func TestLanguages(t *testing.T) {
	for l := range Language(20) {
		c := &Command{Language: l, Code: 1}
		back, _, err := parse(whole(c, ""))
		want := l
		if int(l) >= len(languages) {
			want = Other // JSON has names only
		}
		if err != nil || back.Language != want {
			t.Errorf("%v became %v, %v", l, back.Language, err)
		}
		c.Encoding = Binary
		if back, _, err = parse(whole(c, "")); err != nil || back.Language != l {
			t.Errorf("binary: %v became %v, %v", l, back.Language, err)
		}
	}
}

// FuzzParse: whatever is read is written and read again the same.
func FuzzParse(f *testing.F) {
	f.Add(byte(0), []byte(`{"code":43,"flag":0,"language":"GO","opaque":1,"serializeTypeCurrentRPC":"JSON","version":0,"extFields":{"k":"v"},"remark":"x"}`))
	f.Add(byte(0), []byte(`{"code":"21","extFields":{0:"x"}}`))
	f.Add(byte(1), Append(nil, &Command{Encoding: Binary, Code: 1, Remark: "r", Fields: map[string]string{"k": "v"}}, 0)[PrefixSize:])
	f.Fuzz(func(t *testing.T, kind byte, header []byte) {
		c, err := Parse(Encoding(kind%2), header)
		if err != nil {
			if !errors.Is(err, ErrHeader) {
				t.Fatalf("%q: %v", header, err)
			}
			return
		}
		again, _, err := parse(whole(c, "body"))
		if err != nil || !equal(c, again) {
			t.Fatalf("%q: %+v became %+v, %v", header, c, again, err)
		}
	})
}

// FuzzPrefix: lengths that are taken fit together.
func FuzzPrefix(f *testing.F) {
	f.Add([]byte{0, 0, 0, 8, 0, 0, 0, 4}, 1024)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		limit = min(max(limit, 4), 1<<30)
		if len(b) < PrefixSize {
			return
		}
		p, err := ParsePrefix(b, limit)
		if err == nil && (p.Header < 0 || p.Header > MaxHeader || p.Body < 0 || 4+p.Header+p.Body > limit) {
			t.Fatalf("%x: %+v", b, p)
		}
	})
}
