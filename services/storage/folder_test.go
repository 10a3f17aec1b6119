package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A node whose folder is taken away ends, also while nothing is written. Its last word names the folder, and what stands in its
// place is left alone.
func TestAFolderThatIsTakenAway(t *testing.T) {
	t.Parallel()
	master := alone(t).spawn().awaitOpen()
	s := follower(t, 1, master).spawn()
	master.put([]byte("one"))
	s.awaitEnd(master.end64())
	for _, c := range []struct {
		n    *node
		take func(dir string) error
		left []string
	}{
		{s, os.RemoveAll, nil},
		{master, func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o700), os.WriteFile(dir+"/lock", []byte("lock"), 0o600))
		}, []string{"lock"}},
	} {
		id, dir := c.n.cfg.BrokerID, c.n.cfg.StorePathRootDir
		if err := c.take(dir); err != nil {
			t.Fatal(err)
		}
		cmd := c.n.cmd
		c.n.cmd = nil
		c.n.hangUp()
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("node %d ended with %v", id, err)
		}
		lines := strings.Split(strings.TrimSpace(c.n.log.String()), "\n")
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "storage: folder: ") || !strings.Contains(last, dir) || strings.Contains(last, "close ") {
			t.Errorf("the last word of node %d: %s", id, last)
		}
		var left []string
		names, _ := os.ReadDir(dir) // or it is not there
		for _, name := range names {
			left = append(left, name.Name())
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("node %d has written into another folder: %v", id, left)
		}
	}
}
