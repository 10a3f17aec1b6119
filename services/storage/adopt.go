package main

import (
	"context"
	"fmt"
	"io"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/role/saved"
)

// adoptCommand is `storage adopt`. It is no key of the configuration: one that stays there would let every wrong folder pass.
func adoptCommand() service.Command[Config] {
	return service.Command[Config]{
		Name:    "adopt",
		Summary: "make the folder of a stopped storage (storePathRootDir) that of the broker in the configuration, after the broker was\n                renamed (brokerClusterName, brokerName); once, on each of its nodes",
		Run: func(_ context.Context, c *Config, args []string, out io.Writer) error {
			return runAdopt(vfs.OS(), c, args, out)
		},
	}
}

func runAdopt(fsys vfs.FS, c *Config, args []string, out io.Writer) error {
	if len(args) > 0 {
		return errdefs.Invalid("adopt", "takes no arguments; usage: storage [-config FILE] adopt")
	}
	dir, now := c.StorePathRootDir, saved.Broker{Cluster: c.BrokerClusterName, Name: c.BrokerName}
	was, err := saved.Adopt(fsys, dir, now)
	switch {
	case err != nil:
		return fmt.Errorf("storePathRootDir %s: %w", dir, err)
	case was == saved.Broker{}:
		_, err = fmt.Fprintf(out, "%s is nobody's: the storage that starts there first makes it its own\n", dir)
	case was == now:
		_, err = fmt.Fprintf(out, "%s is that of %v already\n", dir, now)
	default:
		_, err = fmt.Fprintf(out, "%s was that of %v, and is that of %v now\n", dir, was, now)
	}
	return err
}
