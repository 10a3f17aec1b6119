package config

import (
	"context"
	"errors"
	"io"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/watchdog"
)

// Types of the admin's calls.
type (
	// KindStatus is where a node stands with one table.
	KindStatus = configsyncv1.KindStatus
	// ImportResult says what an import did, or would do, to one table.
	ImportResult = configsyncv1.ImportResult
	// Difference is an entry that two nodes do not have alike.
	Difference = configsyncv1.Difference
	// DiffSummary counts the differences of one table.
	DiffSummary = configsyncv1.DiffSummary
)

// File is a table as RocketMQ's file holds it.
type File struct {
	Kind Kind
	// Name of RocketMQ's file, such as topics.json.
	Name string
	Data []byte
}

// piece is how much of a file one message carries, bytes.
const piece = 1 << 20

// Admin looks after one node. All methods may be called concurrently.
type Admin struct {
	c *Client
	n *node
}

// Admin returns the admin of the node at address, which need not be one of the client's own; "" is the first of these.
func (c *Client) Admin(address string) (*Admin, error) {
	if address == "" {
		address = c.set.addresses[0]
	}
	if err := nodes.CheckAddress(address); err != nil {
		return nil, err
	}
	n, err := c.set.get(address)
	if err != nil {
		return nil, err
	}
	return &Admin{c: c, n: n}, nil
}

// Address returns the node's address.
func (a *Admin) Address() string { return a.n.addr }

// Status returns what the node tells about itself.
func (a *Admin) Status(ctx context.Context) (*NodeStatus, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	st, err := a.n.admin.Status(ctx, &configsyncv1.StatusRequest{})
	return st, nodes.Explain(err, a.n.addr)
}

// Sync runs a round of a slave now and returns where its tables stand then.
func (a *Admin) Sync(ctx context.Context) ([]*KindStatus, error) {
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	resp, err := a.n.admin.Sync(ctx, &configsyncv1.SyncRequest{})
	return resp.GetKinds(), nodes.Explain(err, a.n.addr)
}

// Export returns the node's tables as RocketMQ's files hold them; no kinds: all.
func (a *Admin) Export(ctx context.Context, kinds ...Kind) ([]*File, error) {
	ctx, dog := watchdog.New(ctx, a.c.o.Timeout, ErrStalled)
	defer dog.End()
	var files []*File
	stream, err := a.n.admin.Export(ctx, &configsyncv1.ExportRequest{Kinds: kinds})
	for err == nil {
		dog.Start()
		var resp *configsyncv1.ExportResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		dog.Rest()
		last := len(files) - 1
		if last < 0 || files[last].Kind != resp.GetKind() {
			files, last = append(files, &File{Kind: resp.GetKind(), Name: resp.GetFileName()}), last+1
		}
		files[last].Data = append(files[last].Data, resp.GetData()...)
	}
	if errors.Is(err, io.EOF) {
		return files, nil
	}
	return nil, nodes.Explain(dog.Cause(err), a.n.addr)
}

// Import gives the node tables as RocketMQ's files hold them. With replace its own become theirs; else they are merged. With dryRun it
// only says what it would do. An error after the request has left may mean that some tables were taken: an import can be repeated.
func (a *Admin) Import(ctx context.Context, files []*File, replace, dryRun bool) ([]*ImportResult, error) {
	ctx, dog := watchdog.New(ctx, a.c.o.Timeout, ErrStalled)
	defer dog.End()
	mode := configsyncv1.ImportMode_IMPORT_MODE_MERGE
	if replace {
		mode = configsyncv1.ImportMode_IMPORT_MODE_REPLACE
	}
	stream, err := a.n.admin.Import(ctx)
	if err != nil {
		return nil, nodes.Explain(err, a.n.addr)
	}
send:
	for _, f := range files {
		for data, first := f.Data, true; first || len(data) > 0; first = false {
			n := min(len(data), piece)
			dog.Start()
			if stream.Send(&configsyncv1.ImportRequest{Mode: mode, DryRun: dryRun, Kind: f.Kind, Data: data[:n]}) != nil {
				break send // the answer says why
			}
			data = data[n:]
		}
	}
	dog.Start()
	resp, err := stream.CloseAndRecv()
	return resp.GetResults(), nodes.Explain(dog.Cause(err), a.n.addr)
}

// Diff compares the node's tables with those of the node at address, as the node reaches it; no kinds: all. f is called with at most
// limit differences (0: 1,000), the summaries count all.
func (a *Admin) Diff(ctx context.Context, address string, limit int32, kinds []Kind, f func(*Difference) error) ([]*DiffSummary, error) {
	ctx, dog := watchdog.New(ctx, a.c.o.Timeout, ErrStalled)
	defer dog.End()
	var sums []*DiffSummary
	stream, err := a.n.admin.Diff(ctx, &configsyncv1.DiffRequest{Address: address, Kinds: kinds, Limit: limit})
	for err == nil {
		dog.Start()
		var resp *configsyncv1.DiffResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		dog.Rest()
		for _, d := range resp.GetDifferences() {
			if fErr := f(d); fErr != nil {
				return nil, fErr
			}
		}
		sums = append(sums, resp.GetSummaries()...)
	}
	if errors.Is(err, io.EOF) {
		return sums, nil
	}
	return nil, nodes.Explain(dog.Cause(err), a.n.addr)
}
