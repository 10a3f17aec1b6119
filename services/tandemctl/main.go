package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	a := &app{in: os.Stdin, out: os.Stdout, errOut: os.Stderr, env: os.Getenv}
	os.Exit(a.run(ctx, os.Args[1:]))
}
