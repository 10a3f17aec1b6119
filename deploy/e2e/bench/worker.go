package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// worker is a process of services/storage/internal/benchmark.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// answer is what a command gets; its shape is that of the helper.
type answer struct {
	Error  string             `json:"error"`
	Number map[string]float64 `json:"number"`
	Text   map[string]string  `json:"text"`
}

func startWorker(ctx context.Context, bin string) (*worker, error) {
	cmd := exec.CommandContext(ctx, bin)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &worker{cmd: cmd, in: in, out: json.NewDecoder(out)}, cmd.Start()
}

// do sends a command and waits for the answer.
func (w *worker) do(format string, args ...any) (answer, error) {
	line := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(w.in, line+"\n"); err != nil {
		return answer{}, fmt.Errorf("%s: %w", line, err)
	}
	var a answer
	if err := w.out.Decode(&a); err != nil {
		return a, fmt.Errorf("%s: the process has ended: %w", line, err)
	}
	if a.Error != "" {
		verb, _, _ := strings.Cut(line, " ")
		return a, fmt.Errorf("%s (%s)", a.Error, strings.TrimPrefix(line, verb+" "))
	}
	return a, nil
}

// end closes the process's input, upon which it removes its folder and ends.
func (w *worker) end() error {
	return errors.Join(w.in.Close(), w.cmd.Wait())
}
