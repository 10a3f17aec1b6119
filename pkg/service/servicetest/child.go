package servicetest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Command is the test binary as a child that is not started yet; variable tells its TestMain to be the service. It does not outlive
// the test.
func Command(variable string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...) //nolint:gosec,noctx // this binary; the test ends it
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// forks keeps children from being born while a service of this process stops: until its exec a child holds all files that are
// open here, locks of folders among them.
var forks sync.RWMutex

// Fork starts a child.
func Fork(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	forks.Lock()
	defer forks.Unlock()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

// Run runs the test binary as the service to its end and returns what it wrote and how it ended.
func Run(t testing.TB, variable string, args ...string) (string, error) {
	t.Helper()
	cmd, out := Command(variable, args...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	Fork(t, cmd)
	err := cmd.Wait()
	return out.String(), err //nolint:wrapcheck // says enough
}

// End sends the child a signal and returns how it ended.
func End(t testing.TB, cmd *exec.Cmd, s syscall.Signal) error {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Errorf("signal: %v", err)
	}
	return cmd.Wait() //nolint:wrapcheck // says enough
}

// Settings are the -set flags that make the configuration std that of c, a pointer to the same struct.
func Settings(c, std any) []string {
	var args []string
	var walk func(prefix string, have, std reflect.Value)
	walk = func(prefix string, have, std reflect.Value) {
		for i := range have.NumField() {
			f := have.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			h, d := have.Field(i), std.Field(i)
			switch {
			case f.Anonymous:
				walk(prefix, h, d)
			case f.Type.Kind() == reflect.Struct:
				walk(prefix+name+".", h, d)
			case reflect.DeepEqual(h.Interface(), d.Interface()):
			case f.Type.Kind() == reflect.Slice:
				var list []string
				for j := range h.Len() {
					list = append(list, fmt.Sprint(h.Index(j).Interface()))
				}
				args = append(args, "-set", prefix+name+"="+strings.Join(list, ","))
			default:
				args = append(args, "-set", fmt.Sprintf("%s%s=%v", prefix, name, h.Interface()))
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem(), reflect.ValueOf(std).Elem())
	return args
}
