package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

const (
	defaultAddr = "127.0.0.1:10911"
	addrVar     = "TANDEMCTL_ADDR"

	leastMaxMessage byteSize = 64 << 10
	mostMaxMessage  byteSize = 1 << 30
)

// app is one invocation: where it reads and writes, and its global flags.
type app struct {
	in          io.Reader
	out, errOut io.Writer
	env         func(string) string
	hurry       chan struct{} // closed when the user will not wait for an orderly end
	self        string        // how this program was started; empty: tandemctl

	addr []string
	// ledgerAddr is --addr of the ledger's commands.
	ledgerAddr []string
	// configAddr and local are --addr and --local of the commands about config sync.
	configAddr []string
	local      bool
	timeout    time.Duration
	output     string
	tls        grpcx.TLS
	// maxMessage bounds a gRPC message in either direction, bytes.
	maxMessage byteSize
}

// run carries one command line out and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	out := &sink{w: a.out}
	a.out = out
	a.in = &input{ctx: ctx, r: a.in}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	err := root.ExecuteContext(ctx)
	if err == nil && out.err != nil {
		err = fmt.Errorf("write the output: %w", out.err)
	}
	return a.report(ctx, err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "tandemctl",
		Short: "Put and read messages, look after Tandem storages, try them out",
		Long: "tandemctl puts and reads messages, shows what storages do, compares their logs byte by byte,\n" +
			"and starts a playground of a master and slaves on this machine.\n\n" +
			"New here? Run `tandemctl playground` and do what it says.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       buildVersion(),
		Args:          a.unknownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("tandemctl {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	a.globalFlags(root)
	root.AddCommand(a.putCommand(), a.getCommand(), a.tailCommand(), a.statusCommand(), a.verifyCommand(),
		a.queuesCommand(), a.flushCommand(), a.rangeCommand(), a.promoteCommand(),
		a.demoteCommand(), a.rollbackCommand(), a.scrubCommand(), a.repairCommand(), a.benchCommand(), a.ledgerCommand(), a.topicCommand(), a.groupCommand(), a.offsetCommand(), a.configCommand(), a.playgroundCommand())
	return root
}

func (a *app) globalFlags(root *cobra.Command) {
	addr := defaultAddr
	if v := a.env(addrVar); v != "" {
		addr = v
	}
	f := root.PersistentFlags()
	f.StringSliceVar(&a.addr, "addr", strings.Split(addr, ","), "gRPC `addresses` of the storages, host:port separated by commas (env "+addrVar+")")
	f.DurationVar(&a.timeout, "timeout", 10*time.Second, "longest `time` for one call")
	f.StringVarP(&a.output, "output", "o", "table", "`format`: table or json (one object a line)")
	f.BoolVar(&a.tls.Enable, "tls", false, "speak TLS, trusting the system's certificates unless --tls-ca is given")
	f.StringVar(&a.tls.CAFile, "tls-ca", "", "PEM `file` of the CA that the storage's certificate comes from")
	f.StringVar(&a.tls.CertFile, "tls-cert", "", "PEM `file` of the client's certificate")
	f.StringVar(&a.tls.KeyFile, "tls-key", "", "PEM `file` of the client's key")
	f.StringVar(&a.tls.ServerName, "tls-server-name", "", "`name` in the storage's certificate, where it is not the host")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	a.maxMessage = grpcx.DefaultMaxMessage
	f.Var(&a.maxMessage, "max-message", "`size` of the largest message to send or take, with all that comes with it")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if a.output != "table" && a.output != "json" {
			return usagef("--output %q is neither table nor json", a.output)
		}
		if a.timeout <= 0 {
			return usagef("--timeout %v is not above 0", a.timeout)
		}
		if a.maxMessage < leastMaxMessage || a.maxMessage > mostMaxMessage {
			return usagef("--max-message %v is not within %v and %v", &a.maxMessage, new(leastMaxMessage), new(mostMaxMessage))
		}
		return nil
	}
}

// dial makes a client of the given addresses, or of --addr.
func (a *app) dial(ctx context.Context, addrs ...string) (*client.Client, error) {
	if len(addrs) == 0 {
		addrs = a.addr
	}
	trimmed := slices.Clone(addrs)
	for i := range trimmed {
		trimmed[i] = strings.TrimSpace(trimmed[i])
	}
	c, err := client.Dial(ctx, client.Options{Addresses: trimmed, TLS: a.tls, Timeout: a.timeout, MaxMessage: int(a.maxMessage)})
	if err != nil {
		return nil, wrapUsage(err)
	}
	return c, nil
}

// with calls f with a client of --addr.
func (a *app) with(ctx context.Context, f func(*client.Client) error) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is lost by a failed goodbye
	return f(c)
}

func (a *app) json() bool { return a.output == "json" }

// buildVersion is the version that the build has set, else what the go command put into the binary.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case !ok || info.Main.Version == "" || info.Main.Version == "(devel)":
		return "devel"
	}
	return info.Main.Version
}

// isTerminal reports whether f is a file on a terminal.
func isTerminal(f any) bool {
	file, ok := fileOf(f)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS) //nolint:gosec // a descriptor fits an int
	return err == nil
}
