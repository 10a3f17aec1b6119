package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/registry"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
	"github.com/tandemlog/tandem/services/configsync/internal/wire"
)

// Whole are whole tables.
type Whole interface {
	Snapshot(k entry.Kind) *table.Table
	Whole(k entry.Kind) error
	// Import has saved the whole table or nothing of it.
	Import(ctx context.Context, t *table.Table, o registry.ImportOptions) (registry.ImportResult, error)
	// Flush saves what was gathered.
	Flush(ctx context.Context) error
}

// Peers has other nodes' tables.
type Peers interface {
	Pull(ctx context.Context, addr string, k entry.Kind) (*table.Table, error)
	// Round runs a round of the sync now.
	Round(ctx context.Context) error
}

// Admin implements ConfigAdminService.
type Admin struct {
	configsyncv1.UnimplementedConfigAdminServiceServer

	tables Whole
	role   Role
	peers  Peers
	status func() *configsyncv1.StatusResponse
}

// NewAdmin makes the service; status composes one Status answer.
func NewAdmin(t Whole, r Role, p Peers, status func() *configsyncv1.StatusResponse) *Admin {
	return &Admin{tables: t, role: r, peers: p, status: status}
}

// piece is the size of a piece of a file, maxFile that of a file.
const (
	piece   = 1 << 20
	maxFile = 128 << 20
)

// Status implements ConfigAdminService.
func (s *Admin) Status(context.Context, *configsyncv1.StatusRequest) (*configsyncv1.StatusResponse, error) {
	return s.status(), nil
}

var errLeads = errdefs.New(errdefs.FailedPrecondition, "IS_MASTER", "this node leads; rounds are for slaves")

// Sync implements ConfigAdminService.
func (s *Admin) Sync(ctx context.Context, _ *configsyncv1.SyncRequest) (*configsyncv1.SyncResponse, error) {
	if _, _, err := s.role.Reign(); err == nil {
		return nil, errLeads
	}
	if err := s.peers.Round(ctx); err != nil {
		return nil, err
	}
	return &configsyncv1.SyncResponse{Kinds: s.status().GetKinds()}, nil
}

// Export implements ConfigAdminService.
func (s *Admin) Export(req *configsyncv1.ExportRequest, stream grpc.ServerStreamingServer[configsyncv1.ExportResponse]) error {
	kinds, err := wire.KindsOf("kinds", req.GetKinds())
	if err != nil {
		return err
	}
	if err := s.tables.Flush(stream.Context()); err != nil {
		return err
	}
	for _, k := range kinds {
		if err := s.tables.Whole(k); err != nil {
			return err
		}
		data := jsonfile.AppendFile(nil, s.tables.Snapshot(k))
		for len(data) > 0 {
			n := min(len(data), piece)
			if err := stream.Send(&configsyncv1.ExportResponse{Kind: wire.Kind(k), FileName: k.File(), Data: data[:n]}); err != nil {
				return err
			}
			data = data[n:]
		}
	}
	return nil
}

// Import implements ConfigAdminService.
func (s *Admin) Import(stream grpc.ClientStreamingServer[configsyncv1.ImportRequest, configsyncv1.ImportResponse]) error {
	if err := s.role.Enter(); err != nil && !s.mayHeal() {
		return err
	} else if err == nil {
		s.role.Leave() // only to say so before the files come
	}
	tables, o, err := readImport(stream)
	if err != nil {
		return err
	}
	if err := s.role.Enter(); err == nil {
		defer s.role.Leave()
	} else if !s.mayHeal() || !o.Replace {
		return err
	}
	resp := &configsyncv1.ImportResponse{}
	for _, t := range tables {
		r, err := s.tables.Import(stream.Context(), t, o)
		if err != nil {
			return err
		}
		resp.Results = append(resp.Results, &configsyncv1.ImportResult{
			Kind: wire.Kind(t.Kind()), Added: int64(r.Added), Changed: int64(r.Updated), Deleted: int64(r.Removed),
			Unchanged: int64(r.Same), Kept: int64(r.Kept),
		})
	}
	return stream.SendAndClose(resp)
}

// mayHeal reports whether the node is no open master because a table is broken: an import may make it whole.
func (s *Admin) mayHeal() bool {
	if _, _, err := s.role.Reign(); err == nil {
		return false
	}
	for _, k := range entry.Kinds() {
		if s.tables.Whole(k) != nil {
			return s.status().GetMaster()
		}
	}
	return false
}

// readImport reads the files of a stream.
func readImport(stream grpc.ClientStreamingServer[configsyncv1.ImportRequest, configsyncv1.ImportResponse]) ([]*table.Table, registry.ImportOptions, error) {
	var o registry.ImportOptions
	files := map[entry.Kind][]byte{}
	for first := true; ; first = false {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, o, err
		}
		if first {
			if o, err = importOptions(req); err != nil {
				return nil, o, err
			}
		}
		k, err := wire.KindOf("kind", req.GetKind())
		if err != nil {
			return nil, o, err
		}
		if files[k] = append(files[k], req.GetData()...); len(files[k]) > maxFile {
			return nil, o, errdefs.Invalid("data", "%s is larger than %d MiB", k.File(), maxFile>>20)
		}
	}
	if len(files) == 0 {
		return nil, o, errdefs.Invalid("data", "no file was sent")
	}
	var tables []*table.Table
	for _, k := range entry.Kinds() {
		data, ok := files[k]
		if !ok {
			continue
		}
		t, err := imported(k, data)
		if err != nil {
			return nil, o, err
		}
		tables = append(tables, t)
	}
	return tables, o, nil
}

// imported reads a file as an operator may bring it. What a RocketMQ master sends, and what a node finds at its start, is not held
// against all of this.
func imported(k entry.Kind, data []byte) (*table.Table, error) {
	t, err := jsonfile.Decode(k, data)
	if err == nil {
		for e := range t.Ascend("") {
			if err = entry.ValidateImported(e.Key, e.Value); err != nil {
				break
			}
		}
	}
	if e := errdefs.As(err); e != nil {
		return nil, e.WithMsg("%s: %s", k.File(), e.Msg).WithField("data").With("file", k.File())
	}
	return t, err
}

func importOptions(req *configsyncv1.ImportRequest) (registry.ImportOptions, error) {
	o := registry.ImportOptions{DryRun: req.GetDryRun()}
	switch req.GetMode() {
	case configsyncv1.ImportMode_IMPORT_MODE_MERGE:
	case configsyncv1.ImportMode_IMPORT_MODE_REPLACE:
		o.Replace = true
	default:
		return o, errdefs.Invalid("mode", "%d is neither MERGE nor REPLACE", req.GetMode())
	}
	return o, nil
}
