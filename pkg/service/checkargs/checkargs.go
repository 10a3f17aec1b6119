package checkargs

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Usage follows the command's name in a list of commands.
const Usage = "[-json] [DIR]"

// Read returns the folder that args name, dir where they name none, and whether the answer shall be JSON, one object a line. After
// -h, about has been written to out and the error is flag.ErrHelp.
func Read(service, about, dir string, args []string, out io.Writer) (folder string, asJSON bool, err error) {
	fs := flag.NewFlagSet("check", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&asJSON, "json", false, "one JSON object a line")
	usage := "usage: " + service + " [flags] check " + Usage
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		if _, err := fmt.Fprintf(out, "%s\n\n%s\n", usage, about); err != nil {
			return "", false, fmt.Errorf("write the output: %w", err)
		}
		return "", false, err //nolint:wrapcheck // a word between this package and its caller
	case err != nil:
		return "", false, errdefs.Invalid("check", "%v; %s", err, usage)
	case fs.NArg() > 1:
		return "", false, errdefs.Invalid("check", "takes one folder, not %d; %s", fs.NArg(), usage)
	case fs.NArg() == 1:
		dir = fs.Arg(0)
	}
	return dir, asJSON, nil
}
