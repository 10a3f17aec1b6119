package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// exitInterrupted is the exit code when a second signal cuts everything short.
const exitInterrupted = 130

// version is set by the build.
var version string

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	a := &app{in: os.Stdin, out: os.Stdout, errOut: os.Stderr, env: os.Getenv, hurry: make(chan struct{}), self: os.Args[0]}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		heed(signals, cancel, a.hurry)
		// What does not listen to the context, such as a read from a terminal, ends here.
		time.AfterFunc(2*time.Second, func() { os.Exit(exitInterrupted) })
	}()
	code := a.run(ctx, os.Args[1:])
	cancel()
	os.Exit(code)
}

// heed cancels at the first signal and closes hurry at the second. Signals within half a second are one: a terminal or
// timeout(1) may send it to the process and to its group.
func heed(signals <-chan os.Signal, cancel func(), hurry chan<- struct{}) {
	<-signals
	cancel()
	for settled := time.After(500 * time.Millisecond); ; {
		select {
		case <-settled:
			<-signals
			close(hurry)
			return
		case <-signals:
		}
	}
}
