package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// nodeStatus is what a node says of itself.
type nodeStatus interface {
	comparable
	proto.Message
}

// view is what is known of one node: its status, or why there is none; neither while it has not answered yet.
type view[S nodeStatus] struct {
	addr   string
	status S
	err    error
}

// answered reports whether there is a status, and writes why not.
func (v view[S]) answered(p page) bool {
	var none S
	if v.status != none && v.err == nil {
		return true
	}
	why := "no answer yet"
	if v.err != nil {
		why, _ = explain(v.err)
	}
	say(p.w, wrap(v.addr+"  ", "not reached: "+why, p.line))
	return false
}

// nodes are those of one service, as a status command shows them.
type nodes[S nodeStatus] struct {
	app       *app
	addresses []string
	status    func(ctx context.Context, addr string) (S, error)
	draw      func(page, view[S])
}

// statusCommand adds to a command that it may go on. every is 0 for once.
func statusCommand(cmd *cobra.Command, run func(ctx context.Context, every time.Duration) error) *cobra.Command {
	var watch bool
	interval := time.Second
	cmd.Use, cmd.Args = "status", noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case !watch:
			return run(cmd.Context(), 0)
		case interval < 100*time.Millisecond || interval > time.Hour:
			return usagef("--interval %v is not within 100ms and 1h", interval)
		}
		return run(cmd.Context(), interval)
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", interval, "`time` between two showings with -w")
	return cmd
}

// ask asks all nodes at once.
func (n nodes[S]) ask(ctx context.Context) []view[S] {
	all := make([]view[S], len(n.addresses))
	var wg sync.WaitGroup
	for i, addr := range n.addresses {
		wg.Go(func() {
			all[i].addr = addr
			all[i].status, all[i].err = n.status(ctx, addr)
		})
	}
	wg.Wait()
	return all
}

// run shows the nodes once, or again and again. The exit code of once is 1 when one of them does not answer.
func (n nodes[S]) run(ctx context.Context, every time.Duration) error {
	if every == 0 {
		_, err := n.once(ctx)
		return err
	}
	return n.redraw(ctx, every, func() []view[S] {
		ask, cancel := context.WithTimeout(ctx, min(max(every, 500*time.Millisecond), firstPicture)) // the picture does not wait for a node that is away
		defer cancel()
		return n.ask(ask)
	})
}

// once shows each node once; its error is that of the nodes that did not answer.
func (n nodes[S]) once(ctx context.Context) ([]view[S], error) {
	all := n.ask(ctx)
	if err := n.show(n.app.out, all, time.Now()); err != nil {
		return nil, err
	}
	var failed []error
	for _, v := range all {
		if v.err != nil {
			failed = append(failed, flatten(v.err)...)
		}
	}
	if len(failed) > 0 && n.app.json() {
		return all, errReported
	}
	return all, errors.Join(failed...)
}

// firstPicture is the longest wait for nodes before the first picture of -w.
const firstPicture = time.Second

// redraw shows pictures until Ctrl-C, which is how it ends. On a terminal it redraws in place.
func (n nodes[S]) redraw(ctx context.Context, every time.Duration, picture func() []view[S]) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	inPlace := isTerminal(n.app.out) && !n.app.json()
	for {
		all := picture()
		if ctx.Err() != nil {
			return nil
		}
		if err := n.drawAll(all, inPlace, every); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// drawAll shows one picture: over the last one in place, else below it.
func (n nodes[S]) drawAll(all []view[S], inPlace bool, every time.Duration) error {
	var b bytes.Buffer
	now := time.Now()
	if !n.app.json() {
		sayf(&b, "%s, every %v; Ctrl-C ends\n\n", now.UTC().Format("15:04:05 UTC"), every)
	}
	if err := n.show(&b, all, now); err != nil {
		return err
	}
	out := b.Bytes()
	switch {
	case inPlace: // home, each line with the rest of the old one cleared, then everything below
		out = append([]byte("\x1b[H"), bytes.ReplaceAll(out, []byte("\n"), []byte("\x1b[K\n"))...)
		out = append(out, "\x1b[J"...)
	case !n.app.json():
		out = append(out, '\n')
	}
	_, err := n.app.out.Write(out)
	return err
}

// show writes nodes as asked for.
func (n nodes[S]) show(w io.Writer, all []view[S], now time.Time) error {
	for i, v := range all {
		if n.app.json() {
			if err := v.print(w); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			say(w)
		}
		n.draw(page{w: w, width: width(n.app.out), line: lineWidth(n.app.out), now: now, ctl: n.app.name()}, v)
	}
	return nil
}

// print writes one node as a line of JSON.
func (v view[S]) print(w io.Writer) error {
	line := struct {
		Address string          `json:"address"`
		Status  json.RawMessage `json:"status,omitempty"`
		Error   string          `json:"error,omitempty"`
	}{Address: v.addr}
	var none S
	switch {
	case v.err != nil:
		line.Error = v.err.Error()
	case v.status != none:
		b, err := protoJSON(v.status)
		if err != nil {
			return err
		}
		line.Status = b
	}
	return printJSON(w, line)
}

// page writes nodes for people.
type page struct {
	w     io.Writer
	width int // of remedies
	line  int // of what nodes that are away say
	now   time.Time
	ctl   string // how the user starts this program
}

// reason writes what keeps something from working, and below it what to do.
func (p page) reason(reason, remedy string) {
	say(p.w, wrap("  ! ", reason, p.width))
	if remedy != "" {
		say(p.w, wrap("    -> ", commands(remedy, p.ctl), p.width))
	}
}

// rows writes a table, indented as what belongs to a node.
func (p page) rows(header []string, rows ...[]string) {
	var b bytes.Buffer
	table(&b, header, rows)
	for line := range bytes.Lines(b.Bytes()) {
		sayf(p.w, "  %s", line)
	}
}

// build is the version of a node's program and how long it has been running.
func (p page) build(version string, started *timestamppb.Timestamp) string {
	if started == nil {
		return "tandem " + version
	}
	return "tandem " + version + ", up " + shortDuration(p.now.Sub(started.AsTime()))
}
