package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// serviceEnv makes the test binary run as a service of this kind.
const serviceEnv = "SERVICE_UNDER_TEST"

func TestMain(m *testing.M) {
	if kind := os.Getenv(serviceEnv); kind != "" {
		os.Exit(Main(testSpec(kind))) //nolint:forbidigo // this process is the service
	}
	os.Exit(m.Run()) //nolint:forbidigo // that is how TestMain ends
}

// testSpec says "up" on standard output when it runs, and tells its end.
func testSpec(kind string) Spec[testConfig] {
	say := func(s string) { fmt.Println(s) } //nolint:forbidigo // the parent reads it
	return Spec[testConfig]{
		Name: "storage", Version: "v9", Summary: "A test service.", NewConfig: testDefaults,
		Health: func(context.Context, *testConfig) error {
			if kind == "sick" {
				return errors.New("not serving")
			}
			return nil
		},
		Commands: []Command[testConfig]{{
			Name: "check", Args: "DIR", Summary: "check a folder",
			Run: func(_ context.Context, c *testConfig, args []string, out io.Writer) error {
				_, err := fmt.Fprintln(out, c.BrokerName, args)
				if kind == "sick" {
					return errdefs.New(errdefs.DataLoss, "ROT", "the folder is broken")
				}
				return err
			},
		}},
		Build: func(ctx context.Context, _ *testConfig, env *Env) ([]Actor, error) {
			env.Defer("files", func(cause error) error { say(fmt.Sprintf("closed %v", cause)); return nil })
			switch kind {
			case "slow build":
				say("up")
				<-ctx.Done()
				return nil, fmt.Errorf("recover: %w", ctx.Err())
			case "taken":
				ln, err := Listen(ctx, "ha.listenPort", "127.0.0.1:0")
				if err != nil {
					return nil, err
				}
				_, err = Listen(ctx, "ha.listenPort", ln.Addr().String())
				return nil, err
			}
			main := Actor{Name: "main", Run: func(ctx context.Context) error {
				say("up " + fmt.Sprint(env.DebugAddr()))
				switch kind {
				case "fails":
					return fmt.Errorf("write log: %w", &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
				case "stuck":
					select {}
				}
				<-ctx.Done()
				say("drained")
				return ctx.Err()
			}}
			return []Actor{main}, nil
		},
	}
}

// child is a running service.
type child struct {
	cmd    *exec.Cmd
	out    *bufio.Scanner
	stderr watched
}

// watched is a buffer whose text can be waited for.
type watched struct {
	mu   sync.Mutex
	more sync.Cond
	b    strings.Builder
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more.L = &w.mu
	w.more.Broadcast()
	return w.b.Write(p)
}

func (w *watched) await(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.more.L = &w.mu
	for !strings.Contains(w.b.String(), text) {
		w.more.Wait()
	}
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func startChild(t *testing.T, kind string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], args...)}
	c.cmd.Env = append(os.Environ(), serviceEnv+"="+kind)
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// line returns the next line of standard output.
func (c *child) line() string {
	if !c.out.Scan() {
		return ""
	}
	return c.out.Text()
}

func (c *child) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait returns the rest of standard output, the last line of standard error and the exit code.
func (c *child) wait() (rest []string, last string, code int) {
	for c.out.Scan() {
		rest = append(rest, c.out.Text())
	}
	_ = c.cmd.Wait() // the code is asked for below
	lines := strings.Split(strings.TrimSpace(c.stderr.String()), "\n")
	return rest, lines[len(lines)-1], c.cmd.ProcessState.ExitCode()
}

func TestSignalDrains(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP} {
		c := startChild(t, "good")
		c.line()
		c.signal(t, s)
		rest, last, code := c.wait()
		if code != ExitOK || strings.Join(rest, ",") != "drained,closed <nil>" || !strings.Contains(last, "msg=stopped") {
			t.Errorf("%v: code %d, %q, %s", s, code, rest, last)
		}
	}
}

func TestSignalDuringStart(t *testing.T) {
	c := startChild(t, "slow build")
	c.line()
	c.signal(t, syscall.SIGTERM)
	if rest, last, code := c.wait(); code != ExitOK || len(rest) != 1 || !strings.HasPrefix(rest[0], "closed start: recover") {
		t.Errorf("code %d, %q, %s", code, rest, last)
	}
}

func TestSecondSignalLeavesAtOnce(t *testing.T) {
	c := startChild(t, "stuck", "-set", "shutdownTimeout=1h")
	c.line()
	c.signal(t, syscall.SIGTERM)
	c.stderr.await("msg=stopping") // the first one was seen
	c.signal(t, os.Interrupt)
	if rest, last, code := c.wait(); code != ExitKilled || len(rest) != 0 || last != "storage: second signal, leaving at once" {
		t.Errorf("code %d, %q, %s", code, rest, last)
	}
}

func TestStuckActorIsNamed(t *testing.T) {
	c := startChild(t, "stuck", "-set", "shutdownTimeout=50ms")
	c.line()
	c.signal(t, syscall.SIGTERM)
	rest, last, code := c.wait()
	if code != ExitFatal || len(rest) != 0 || !strings.Contains(last, "did not stop in time (actors=[main], budget=50ms)") {
		t.Errorf("code %d, closed %q, %s", code, rest, last)
	}
}

func TestFatalErrorIsTheLastLine(t *testing.T) {
	c := startChild(t, "fails")
	rest, last, code := c.wait()
	want := "storage: main: write log: write x: no space left on device; free some space on this disk, or choose another place"
	if code != ExitFatal || last != want || len(rest) != 2 || !strings.HasPrefix(rest[1], "closed main: write log") {
		t.Errorf("code %d, %q\n got %s\nwant %s", code, rest, last, want)
	}
	c = startChild(t, "fails", "-set", "telemetry.logFormat=json")
	if _, last, code = c.wait(); code != ExitFatal || !strings.HasPrefix(last, `{"time":`) || !strings.Contains(last, "free some space") {
		t.Errorf("code %d, %s", code, last)
	}
}

func TestPortTaken(t *testing.T) {
	_, last, code := startChild(t, "taken").wait()
	if code != ExitFatal || !strings.HasPrefix(last, "storage: start: ha.listenPort: cannot listen (address=127.0.0.1:") ||
		!strings.HasSuffix(last, "address already in use; another process has this port: stop it, or choose another") {
		t.Errorf("code %d, %s", code, last)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	_, last, code = startChild(t, "good", "-set", "telemetry.debugListen="+ln.Addr().String()).wait()
	if code != ExitFatal || !strings.Contains(last, "telemetry.debugListen") || !strings.Contains(last, "another process has this port") {
		t.Errorf("code %d, %s", code, last)
	}
}

func TestReadinessFollowsTheService(t *testing.T) {
	c := startChild(t, "good", "-set", "telemetry.debugListen=127.0.0.1:0")
	addr := strings.TrimPrefix(c.line(), "up ")
	for { // the actor runs a moment before the service is ready
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			break
		}
	}
	c.signal(t, syscall.SIGTERM)
	if _, last, code := c.wait(); code != ExitOK {
		t.Errorf("code %d, %s", code, last)
	}
}

func TestFlags(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "storage.yaml")
	if err := os.WriteFile(bad, []byte("brokrName: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		kind     string
		args     string
		code     int
		out, err string // parts
	}{
		{"good", "-version", ExitOK, "storage v9", ""},
		{"good", "-help", ExitOK, "-print-config", ""},
		{"good", "-check-config", ExitOK, "storage: the configuration is valid", ""},
		{"good", "--check-config -config " + bad, ExitConfig, "", "storage: " + bad + ":1: brokrName: unknown key; did you mean brokerName?"},
		{"good", "-config /no/such.yaml", ExitConfig, "", "no such file or directory; name another with -config"},
		{"good", "-print-config -set brokerName=z", ExitOK, "brokerName: z  # -set", ""},
		{"good", "-health", ExitOK, "", ""},
		{"sick", "-health", ExitFatal, "", "storage: not serving"},
		{"good", "-brokerName x", ExitConfig, "", "write -set brokerName=VALUE"},
		{"good", "-chek-config", ExitConfig, "", "did you mean -check-config?"},
		{"good", "-listenPort 1", ExitConfig, "", "did you mean -set ha.listenPort=VALUE?"},
		{"good", "-zzzzzzzz", ExitConfig, "", "see -help"},
		{"good", "start", ExitConfig, "", `unexpected argument "start"`},
		{"good", "chekc /data", ExitConfig, "", `storage: there is no command "chekc"; did you mean check?`},
		{"good", "-set brokerName=q check a b", ExitOK, "q [a b]", ""},
		{"sick", "check", ExitFatal, "", "storage: the folder is broken"},
	} {
		t.Run(tc.kind+" "+tc.args, func(t *testing.T) {
			var out, stderr strings.Builder
			code := run(testSpec(tc.kind), &process{args: strings.Fields(tc.args), stdout: &out, stderr: &stderr})
			if code != tc.code || !strings.Contains(out.String(), tc.out) || !strings.Contains(stderr.String(), tc.err) {
				t.Errorf("code %d\nout %s\nerr %s", code, out.String(), stderr.String())
			}
		})
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("brokerName: env\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, stderr strings.Builder
	code := run(testSpec("good"), &process{
		args: []string{"-print-config"}, environ: []string{"TANDEM_STORAGE_CONFIG=" + file}, stdout: &out, stderr: &stderr,
	})
	if code != ExitOK || !strings.Contains(out.String(), "brokerName: env  # "+file+":1") {
		t.Errorf("code %d, %s%s", code, out.String(), stderr.String())
	}
}

func TestExplain(t *testing.T) {
	_, refused := (&net.Dialer{Timeout: time.Second}).Dial("tcp", "127.0.0.1:99999")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "open", Path: "p", Err: os.ErrPermission}, "let user id"},
		{&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}, "ports below 1024"},
		{&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)}, "no such address"},
		{&os.PathError{Op: "open", Path: "p", Err: syscall.EMFILE}, "ulimit -n"},
		{&os.PathError{Op: "open", Path: "p", Err: syscall.EROFS}, "read-only"},
		{&os.PathError{Op: "open", Path: "p", Err: syscall.ENOENT}, "check the path"},
		{refused, "host:port"},
		{errdefs.New(errdefs.NotFound, "X", "x").Wrap(syscall.ENOSPC).WithRemedy("mine"), "; mine"},
		{errors.Join(errors.New("a"), errors.New("b")), "a; b"},
	} {
		if got := Explain(tc.err); !strings.Contains(got, tc.want) || strings.Contains(got, "\n") {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}
