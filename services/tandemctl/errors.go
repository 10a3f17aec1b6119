package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/nearest"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errReported: stdout says already what is wrong, such as where two logs differ.
var errReported = errors.New("reported")

// usageError is a wrong command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// wrapUsage marks errors about fields that came from the command line.
func wrapUsage(err error) error {
	if errdefs.ClassOf(err) == errdefs.InvalidArgument {
		return &usageError{err}
	}
	return err
}

// report tells an error and returns the exit code.
func (a *app) report(ctx context.Context, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitFailed
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errdefs.ClassOf(err) == errdefs.Canceled):
		say(a.errOut, "tandemctl: interrupted")
		return exitFailed
	case errors.As(err, &usage):
		a.tell(usage.err)
		return exitUsage
	}
	a.tell(err)
	return exitFailed
}

// tell writes what happened, and below it what to do next.
func (a *app) tell(err error) {
	var next []string
	limit := lineWidth(a.errOut)
	for i, one := range flatten(err) {
		what, advice, ok := a.tooLarge(one)
		if !ok {
			what, advice = explain(one)
		}
		lead := "tandemctl: "
		if i > 0 {
			lead = "           "
		}
		say(a.errOut, wrap(lead, a.hint(what), limit))
		for _, n := range advice {
			if !slices.Contains(next, n) {
				next = append(next, n)
			}
		}
	}
	for _, n := range next {
		a.advise(n)
	}
}

// advise writes what to do next.
func (a *app) advise(next string) { say(a.errOut, wrap("  -> ", a.hint(next), width(a.errOut))) }

// flatten takes joins, and joins of joins, apart.
func flatten(err error) []error {
	many, ok := err.(interface{ Unwrap() []error }) // only an unwrapped join is taken apart
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range many.Unwrap() {
		all = append(all, flatten(one)...)
	}
	return all
}

// explain returns an error without its remedy, and what to do.
func explain(err error) (what string, next []string) {
	what = err.Error()
	e := errdefs.As(err)
	if e == nil {
		if errors.Is(err, context.DeadlineExceeded) {
			next = append(next, "give it more time with --timeout")
		}
		return what, next
	}
	if m := unknownService.FindStringSubmatch(e.Msg); m != nil && e.Class == errdefs.Unimplemented {
		s := tandemServices[m[1]]
		what = strings.Replace(what, e.Msg, fmt.Sprintf("this is not %s: another service of Tandem answers there", s.name), 1)
		return what, []string{fmt.Sprintf("name the gRPC port of %s, %s by default", s.name, s.port)}
	}
	if e.Remedy != "" {
		what = strings.TrimSuffix(what, "; "+e.Remedy)
		next = append(next, e.Remedy)
	}
	if addr := e.Meta["address"]; strings.Contains(e.Msg, addr) {
		what = strings.TrimSuffix(what, " (address="+addr+")")
	}
	if aboutTLS(e) {
		what = flagWords.Replace(what)
		for i := range next {
			next[i] = flagWords.Replace(next[i])
		}
	}
	offer := storageAdvice
	var of *marked
	if errors.As(err, &of) {
		offer = of.advice
	} else if e.Reason == client.ErrOutcomeUnknown.Reason {
		return what, []string{"look for it with `tandemctl get` before putting it again, or put with --resend and accept that it may be there twice"}
	}
	if e.Reason == client.ErrUnreachable.Reason && strings.Contains(what, "connection refused") {
		next = nil // the advice below says it better
	}
	return what, append(next, offer(e)...)
}

// patience is how long nothing may get through before it is told.
const patience = time.Second

// trouble is what keeps calls from getting through; the zero value is that nothing does.
type trouble struct {
	since time.Time
	told  string
}

// tell says it, once it lasts, and again when it is something else.
func (t *trouble) tell(a *app, err error) {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	what, _ := explain(flatten(err)[0])
	kind := ownPort.ReplaceAllString(what, "")
	if time.Since(t.since) < patience || kind == t.told {
		return
	}
	t.told = kind
	sayf(a.errOut, "tandemctl: %s; trying again for %s in all (--timeout)\n", what, shortDuration(a.timeout))
}

// marked is an error of another service than a storage, with that service's advice.
type marked struct {
	err    error
	advice func(*errdefs.Error) []string
}

func (e *marked) Error() string { return e.err.Error() }
func (e *marked) Unwrap() error { return e.err }

// mark marks each error of a join.
func mark(err error, advice func(*errdefs.Error) []string) error {
	var usage *usageError
	if err == nil || errors.Is(err, errReported) || errors.As(err, &usage) || errors.Is(err, errNotConfirmed) {
		return err
	}
	all := flatten(err)
	for i := range all {
		all[i] = &marked{all[i], advice}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// unknownService matches what a gRPC server says that is asked for a service which it does not have.
var unknownService = regexp.MustCompile(`^unknown service tandem\.(storage|ledger|configsync)\.`)

var tandemServices = map[string]struct{ name, port string }{
	"storage": {"a storage", "10911"}, "ledger": {"a ledger", "20911"}, "configsync": {"a config sync node", "10921"},
}

// somethingIsThere matches what an address says where a process listens that is not understood, or does not answer.
var somethingIsThere = regexp.MustCompile("no answer from |server preface|handshake|tls: |x509: |broken pipe|connection reset")

// storageAdvice is what this command line can offer beyond the error's own remedy.
func storageAdvice(e *errdefs.Error) []string {
	switch e.Reason {
	case client.ErrUnreachable.Reason:
		if somethingIsThere.MatchString(e.Msg) {
			return nil
		}
		return []string{"is a storage running there? `tandemctl playground` starts a master and slaves", "name other addresses with --addr or " + addrVar}
	case client.ErrNoMaster.Reason:
		return noMasterAdvice(e.Msg)
	case "NOT_MASTER":
		if m := e.Meta["master"]; m != "" {
			return []string{"the master is " + m + ": use --addr " + m}
		}
		return []string{"name all nodes with --addr, separated by commas, so that the master is found"}
	case "PROMOTION_HALF_WAY":
		return []string{"`tandemctl status -w` shows when it opens; `tandemctl demote NODE` gives it up"}
	case "NOT_PROMOTED", "BEHIND_MASTER":
		return []string{"`tandemctl promote --help` says what --force means before you use it"}
	case "NO_SUCH_ROLLBACK":
		return []string{"`tandemctl rollback list --addr NODE` has the names"}
	case "QUEUE_OFFSET_OUTSIDE", "OFFSET_OUTSIDE":
		return []string{"`tandemctl queues` and `tandemctl status` show what there is"}
	case "NO_RECORD":
		return []string{"`tandemctl get --topic TOPIC` shows the offset at which each record starts"}
	}
	if e.Class == errdefs.DeadlineExceeded || errors.Is(e, context.DeadlineExceeded) {
		return []string{"give it more time with --timeout; `tandemctl status` shows what the node is busy with"}
	}
	return nil
}

// noMasterAdvice offers another master only where none is on its way: not where a master waits for others, or where a node that was
// not reached may be one.
func noMasterAdvice(msg string) []string {
	next := []string{"`tandemctl status` shows each node's role and what keeps it from being master"}
	switch {
	case strings.Contains(msg, "is a master but not open"):
		return next
	case strings.Contains(msg, "is not reached"):
		return append(next, "start the nodes that are not reached: a master opens again by itself; only if it will not come back, `tandemctl promote NODE` makes another node the master")
	}
	return append(next, "`tandemctl promote NODE` makes a node the master")
}

// unknownCommand is the root's check of arguments: there are none but commands.
func (a *app) unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := closest(args[0], names); near != "" {
		return usagef("there is no command %q; did you mean %q?", args[0], near)
	}
	slices.Sort(names)
	return usagef("there is no command %q; there are %s", args[0], strings.Join(names, ", "))
}

// wantsCommand is the error of a command that is nothing but the name of others.
func wantsCommand(cmd *cobra.Command) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	slices.Sort(names)
	return usagef("%s wants one of its commands: %s; see %s --help", cmd.CommandPath(), strings.Join(names, ", "), cmd.CommandPath())
}

// flagError names the nearest flag to one that does not exist.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	}
	name := unknown.GetSpecifiedName()
	if len(name) == 1 {
		return usagef("%s has no flag -%s; see %s --help", cmd.CommandPath(), name, cmd.CommandPath())
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := closest(name, names); near != "" {
		return usagef("%s has no flag --%s; did you mean --%s?", cmd.CommandPath(), name, near)
	}
	return usagef("%s has no flag --%s; see %s --help", cmd.CommandPath(), name, cmd.CommandPath())
}

// closest returns the candidate that s most likely means, or "" when none is near. The beginning of a word is near to it.
func closest(s string, candidates []string) string {
	for _, c := range candidates {
		if len(s) > 1 && strings.HasPrefix(c, s) {
			return c
		}
	}
	return nearest.To(s, candidates)
}
