package servicetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

const childVar = "SERVICETEST_RUN_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		fmt.Println(os.Args[1:]) //nolint:forbidigo // the parent reads it
		select {}
	}
	os.Exit(m.Run()) //nolint:forbidigo // that is how TestMain ends
}

func TestServe(t *testing.T) {
	log := &servicetest.Record{}
	c := service.Defaults("")
	c.Telemetry.LogWriter = log
	r, err := servicetest.Serve("x", c, func(env *service.Env) ([]service.Actor, error) {
		env.Defer("folder", func(error) error { env.Logger.Info("closed"); return nil })
		return []service.Actor{{Name: "a", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	}
	<-r.Over()
	if s := log.String(); !strings.Contains(s, "msg=closed") || log.Tail() != s {
		t.Errorf("logged %s", s)
	}
	broken := errors.New("broken")
	if _, err := servicetest.Serve("x", c, func(*service.Env) ([]service.Actor, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	bad := errors.New("ended by itself")
	r, err = servicetest.Serve("x", c, func(*service.Env) ([]service.Actor, error) {
		return []service.Actor{{Name: "a", Run: func(context.Context) error { return bad }}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-r.Over()
	if err := r.Stop(); !errors.Is(err, bad) {
		t.Errorf("error %v", err)
	}
}

func TestChild(t *testing.T) {
	out := &servicetest.Record{}
	cmd := servicetest.Command(childVar, "-set", "a=b")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, out
	servicetest.Fork(t, cmd)
	line := make([]byte, len("[-set a=b]\n"))
	if _, err := r.Read(line); err != nil || string(line) != "[-set a=b]\n" {
		t.Errorf("%q, %v, %s", line, err, out)
	}
	if err := servicetest.End(t, cmd, syscall.SIGKILL); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("ended: %v", err)
	}
	_, _ = r.Close(), w.Close()
}

func TestSettings(t *testing.T) {
	type inner struct {
		Size int `yaml:"size"`
	}
	type config struct {
		inner
		Name   string   `yaml:"name"`
		Peers  []string `yaml:"peers"`
		In     inner    `yaml:"in"`
		Same   int      `yaml:"same"`
		Left   int      `yaml:"-"`
		hidden int
	}
	got := servicetest.Settings(&config{Name: "x", Peers: []string{"a", "b"}, In: inner{5}, Same: 1, Left: 7, hidden: 7}, &config{Same: 1})
	if want := []string{"-set", "name=x", "-set", "peers=a,b", "-set", "in.size=5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if a, b := servicetest.FreeAddr(t), servicetest.FreeAddr(t); a == b || !strings.HasPrefix(a, "127.0.0.1:") {
		t.Errorf("%s, %s", a, b)
	}
}
