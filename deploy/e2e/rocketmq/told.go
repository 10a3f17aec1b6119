package rocketmq

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Mark stands before the lines that Java programs print for who told them something.
const Mark = "> "

// answerWithin bounds the wait for an answer.
const answerWithin = 2 * time.Minute

// Told is a Java program that reads commands from its standard input, a line each. What belongs to an answer begins with
// Mark; its last line is "> ok", with results behind it, or "> error" with the reason. It says ok when it is ready.
type Told struct {
	in    io.WriteCloser
	lines chan string
}

// Connect calls start, which starts cmd, and waits until the program is ready. What it prints is read until ctx ends.
func Connect(ctx context.Context, cmd *exec.Cmd, start func() error) (*Told, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	t := &Told{in: in, lines: make(chan string, 16)}
	if err = errors.Join(start(), w.Close()); err != nil {
		_ = out.Close() // nothing was read
		return nil, err
	}
	go t.read(ctx, out)
	_, _, err = t.answer(ctx)
	return t, err
}

// read hands over the lines that are meant for us.
func (t *Told) read(ctx context.Context, out *os.File) {
	defer close(t.lines)
	defer out.Close() //nolint:errcheck // read only
	for sc := bufio.NewScanner(out); sc.Scan(); {
		if line, ok := strings.CutPrefix(sc.Text(), Mark); ok {
			select {
			case t.lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Ask sends a command and returns its result and the lines before it.
func (t *Told) Ask(ctx context.Context, format string, args ...any) (string, []string, error) {
	command := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(t.in, command+"\n"); err != nil {
		return "", nil, fmt.Errorf("tell RocketMQ's client %q: %w", command, err)
	}
	result, lines, err := t.answer(ctx)
	if err != nil {
		err = fmt.Errorf("RocketMQ's client, %q: %w", command, err)
	}
	return result, lines, err
}

func (t *Told) answer(ctx context.Context) (string, []string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerWithin, fmt.Errorf("no answer within %v", answerWithin))
	defer cancel()
	var before []string
	for {
		select {
		case line, ok := <-t.lines:
			switch {
			case !ok:
				return "", nil, errors.New("it ended")
			case line == "ok" || strings.HasPrefix(line, "ok "):
				return strings.TrimSpace(line[2:]), before, nil
			case strings.HasPrefix(line, "error "):
				return "", nil, errors.New(line)
			}
			before = append(before, line)
		case <-ctx.Done():
			return "", nil, context.Cause(ctx)
		}
	}
}
