package checkargs_test

import (
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service/checkargs"
)

func TestRead(t *testing.T) {
	for args, want := range map[string]struct {
		dir  string
		json bool
		err  string
	}{
		"":           {dir: "/data"},
		"a":          {dir: "a"},
		"-json":      {dir: "/data", json: true},
		"-json -- a": {dir: "a", json: true},
		"a b":        {err: "takes one folder, not 2; usage: storage [flags] check [-json] [DIR]"},
		"-x":         {err: "not defined: -x; usage: storage"},
	} {
		var out strings.Builder
		dir, asJSON, err := checkargs.Read("storage", "Checks.", "/data", strings.Fields(args), &out)
		if dir != want.dir || asJSON != want.json || out.Len() > 0 || (err != nil) != (want.err != "") {
			t.Errorf("%s: %q, %t, %v, %q", args, dir, asJSON, err, out.String())
		}
		if err != nil && (!strings.Contains(err.Error(), want.err) || errdefs.ClassOf(err) != errdefs.InvalidArgument) {
			t.Errorf("%s: %v", args, err)
		}
	}
	var out strings.Builder
	if _, _, err := checkargs.Read("storage", "Checks.", "/data", []string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) || out.String() != "usage: storage [flags] check [-json] [DIR]\n\nChecks.\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}
