package service

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tandemlog/tandem/pkg/nearest"
)

// flagValues are the parsed flags.
type flagValues struct {
	config                                    string
	sets                                      []string
	checkConfig, printConfig, health, version bool
	args                                      []string
}

// parseFlags returns nil and an exit code when there is nothing more to do.
func parseFlags[C any](spec *Spec[C], s *settings, p *process) (*flagValues, int) {
	v := &flagValues{}
	fs := flag.NewFlagSet(spec.Name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&v.config, "config", "", "read the configuration from this YAML `file`")
	fs.Func("set", "set one `key=value` of the configuration; may be repeated", func(set string) error {
		v.sets = append(v.sets, set)
		return nil
	})
	fs.BoolVar(&v.checkConfig, "check-config", false, "check the configuration and exit")
	fs.BoolVar(&v.printConfig, "print-config", false, "print the configuration with all defaults and exit")
	fs.BoolVar(&v.version, "version", false, "print the version and exit")
	if spec.Health != nil {
		fs.BoolVar(&v.health, "health", false, "ask the running service whether it serves and exit with 0 or 1")
	}
	err := fs.Parse(p.args)
	v.args = fs.Args()
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage(spec, fs, p.stdout)
		return nil, ExitOK
	case err != nil:
		return nil, p.fail(spec.Name, ExitConfig, flagError(err, fs, s))
	case len(v.args) > 0 && !slices.ContainsFunc(spec.Commands, func(c Command[C]) bool { return c.Name == v.args[0] }):
		return nil, p.fail(spec.Name, ExitConfig, argumentError(spec, v.args[0]))
	}
	return v, ExitOK
}

// flagError says what an unknown flag may have meant.
func flagError(err error, fs *flag.FlagSet, s *settings) error {
	_, name, ok := strings.Cut(err.Error(), "flag provided but not defined: -")
	if !ok {
		return fmt.Errorf("%w; see -help", err)
	}
	if _, ok := s.byKey[name]; ok {
		return fmt.Errorf("unknown flag -%s; write -set %s=VALUE", name, name)
	}
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := nearest.To(name, names); near != "" {
		return fmt.Errorf("unknown flag -%s; did you mean -%s?", name, near)
	}
	if near := nearest.To(name, s.keys); near != "" {
		return fmt.Errorf("unknown flag -%s; did you mean -set %s=VALUE?", name, near)
	}
	return fmt.Errorf("unknown flag -%s; see -help", name)
}

// argumentError says what an unknown command may have meant.
func argumentError[C any](spec *Spec[C], arg string) error {
	var names []string
	for _, c := range spec.Commands {
		names = append(names, c.Name)
	}
	if near := nearest.To(arg, names); near != "" {
		return fmt.Errorf("there is no command %q; did you mean %s?", arg, near)
	}
	return fmt.Errorf("unexpected argument %q; %s runs without one, see -help", arg, spec.Name)
}

func usage[C any](spec *Spec[C], fs *flag.FlagSet, w io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nUsage: %s [flags]\n", spec.Summary, spec.Name)
	for _, c := range spec.Commands {
		fmt.Fprintf(&b, "       %s [flags] %s\n                %s\n", spec.Name, strings.TrimSpace(c.Name+" "+c.Args), c.Summary)
	}
	b.WriteString("\nFlags:\n")
	fs.VisitAll(func(f *flag.Flag) {
		arg, about := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  %-20s %s\n", strings.TrimSpace("-"+f.Name+" "+arg), about)
	})
	prefix := envPrefix(spec.Name)
	fmt.Fprintf(&b, "\nEvery key of the configuration may also come from the environment or from -set, which wins:\n"+
		"  %s...=VALUE, for example %sTELEMETRY_LOG_LEVEL=debug; %s%s=FILE names the file\n"+
		"  -set telemetry.logLevel=debug\n-print-config shows all keys. Without a file the defaults run.\n",
		prefix, prefix, prefix, configVar)
	_, _ = io.WriteString(w, b.String())
}
