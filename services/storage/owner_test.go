package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/role/saved"
)

// TestAFolderOfAnotherBroker is refused with both names and the remedy, also after a crash, and not a byte of it changes; after
// `storage adopt` it opens with all that was there.
func TestAFolderOfAnotherBroker(t *testing.T) {
	t.Parallel()
	n := alone(t).spawn().awaitOpen()
	first := n.put([]byte("the first"))
	adopt := func() (string, error) {
		var out bytes.Buffer
		err := runAdopt(n.fs, n.cfg, nil, &out)
		return out.String(), err
	}
	if _, err := adopt(); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("adopted while it runs: %v", err)
	}
	n.kill()
	root := n.cfg.StorePathRootDir
	before := files(t, root, ".")
	for name, change := range map[string]func(c *Config){
		"another name":    func(c *Config) { c.BrokerName = "renamed" },
		"another cluster": func(c *Config) { c.BrokerClusterName = "elsewhere" },
	} {
		was := *n.cfg
		n.change(change)
		err := n.tryStart()
		e := errdefs.As(err)
		if !errors.Is(err, saved.ErrOtherBroker) || e.Meta["broker"] != was.BrokerName || e.Meta["cluster"] != was.BrokerClusterName ||
			e.Meta["configured_broker"] != n.cfg.BrokerName || e.Meta["configured_cluster"] != n.cfg.BrokerClusterName || !strings.Contains(e.Remedy, "storage adopt") {
			t.Errorf("%s: %v", name, err)
		}
		*n.cfg = was
	}
	equalFiles(t, before, files(t, root, "."))

	n.change(func(c *Config) { c.BrokerName = "renamed" })
	for _, want := range []string{" was that of broker-a of " + n.cfg.BrokerClusterName + ", and is that of renamed of ", " is that of renamed of " + n.cfg.BrokerClusterName + " already\n"} {
		if out, err := adopt(); err != nil || !strings.Contains(out, root+want) {
			t.Errorf("%q, %v", out, err)
		}
	}
	n.start().awaitOpen()
	n.awaitEnd(first.GetOffset() + int64(first.GetSize()))
	r, err := n.message().GetByOffset(t.Context(), &storagev1.GetByOffsetRequest{Offset: first.GetOffset()})
	if body := r.GetMessage().GetMessage().GetBody(); err != nil || string(body) != "the first" {
		t.Errorf("read %q, %v", body, err)
	}
}

// TestAdoptOfWhatIsNobodys: a folder of RocketMQ's belongs to who starts there first; one that is not there is an error.
func TestAdoptOfWhatIsNobodys(t *testing.T) {
	t.Parallel()
	n := alone(t).takeOver(filepath.Join(testkit.Golden(t, "rocketmq-5.3.3"), "master"))
	var out bytes.Buffer
	if err := runAdopt(n.fs, n.cfg, nil, &out); err != nil || !strings.Contains(out.String(), "is nobody's") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if out, code := n.runToEnd("-set", "storePathRootDir="+filepath.Join(t.TempDir(), "none"), "adopt"); code == 0 || !strings.Contains(out, "storePathRootDir") {
		t.Errorf("a folder that is not there: %d, %s", code, out)
	}
	if out, code := n.runToEnd("adopt", "x"); code == 0 || !strings.Contains(out, "takes no arguments") {
		t.Errorf("%d, %s", code, out)
	}
}
