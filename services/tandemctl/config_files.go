package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client/config"
)

// kindFiles are RocketMQ's files, in the order of the tables' numbers.
var kindFiles = []string{"topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json"} //nolint:gochecknoglobals // a table

// exportFlags are those of config export.
type exportFlags struct {
	node, dir, file string
	tables          []string
	force           bool
}

func (a *app) configExportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a node's tables as RocketMQ's four files, or as one JSON",
		Long: "Write the tables of the master, or of a node, as a RocketMQ broker keeps them in its folder store/config (--dir): a\n" +
			"broker starts on them. Without --dir they become one JSON object with the names of the files, on stdout or in --file;\n" +
			"`tandemctl config import` takes either.",
		Example: "  tandemctl config export --dir ./tables\n" +
			"  tandemctl config export --tables topics | jq '.[\"topics.json\"].topicConfigTable | keys'\n" +
			"  tandemctl config export --node 10.0.0.2:10921 --file slave.json",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.configExport(cmd.Context(), &f) },
	}
	cmd.Flags().StringVar(&f.node, "node", "", "`address` of the node; empty: the master")
	cmd.Flags().StringVar(&f.dir, "dir", "", "`folder` for the files, made where it is missing")
	cmd.Flags().StringVarP(&f.file, "file", "f", "", "one JSON into this new `file`")
	cmd.Flags().BoolVar(&f.force, "force", false, "write over files that exist")
	cmd.MarkFlagsMutuallyExclusive("dir", "file")
	kindsFlag(cmd, &f.tables)
	return cmd
}

func (a *app) configExport(ctx context.Context, f *exportFlags) error {
	kinds, err := kindsOf(f.tables)
	if err != nil {
		return err
	}
	return a.withConfig(func(c *config.Client) error {
		node := f.node
		if node == "" {
			if node, err = c.FindMaster(ctx); err != nil {
				return err
			}
		}
		admin, err := c.Admin(node)
		if err != nil {
			return wrapUsage(err)
		}
		files, err := admin.Export(ctx, kinds...)
		if err != nil {
			return err
		}
		if f.dir != "" {
			return a.writeFiles(f, files)
		}
		one, err := oneJSON(files)
		if err != nil {
			return err
		}
		if f.file == "" {
			_, err = a.out.Write(one)
			return err
		}
		n, err := newFile(f.file, f.force, func(w io.Writer) (int64, error) { return io.Copy(w, bytes.NewReader(one)) })
		if err == nil {
			sayf(a.errOut, "%s written to %s\n", sizeText(n), f.file)
		}
		return err
	})
}

// writeFiles writes the files that RocketMQ has, none where one of them exists already.
func (a *app) writeFiles(f *exportFlags, files []*config.File) error {
	if err := os.MkdirAll(f.dir, 0o755); err != nil {
		return &usageError{fmt.Errorf("cannot make the folder of --dir: %w", err)}
	}
	for _, file := range files {
		if _, err := os.Lstat(filepath.Join(f.dir, file.Name)); err == nil && !f.force {
			return usagef("%s exists; write over it with --force", filepath.Join(f.dir, file.Name))
		}
	}
	for _, file := range files {
		if filepath.Base(file.Name) != file.Name {
			return fmt.Errorf("the node names a file %q", file.Name)
		}
		name := filepath.Join(f.dir, file.Name)
		n, err := newFile(name, f.force, func(w io.Writer) (int64, error) { return io.Copy(w, bytes.NewReader(file.Data)) })
		if err != nil {
			return err
		}
		sayf(a.errOut, "%s written to %s\n", sizeText(n), name)
	}
	return nil
}

// oneJSON joins files into one object, by name.
func oneJSON(files []*config.File) ([]byte, error) {
	all := map[string]json.RawMessage{}
	for _, f := range files {
		all[f.Name] = quoteKeys(f.Data)
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("the node sent no JSON: %w", err)
	}
	return append(b, '\n'), nil
}

// quoteKeys puts quotes around the bare integer keys that RocketMQ writes ({0:5}).
func quoteKeys(data []byte) []byte {
	out := make([]byte, 0, len(data)+len(data)/8)
	keyMayFollow := false
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			end := i + 1
			for end < len(data) && data[end] != '"' {
				if data[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(data))
			out, i, keyMayFollow = append(out, data[i:end]...), end, false
		case keyMayFollow && (c == '-' || c >= '0' && c <= '9'):
			end := i
			for end < len(data) && (data[end] == '-' || data[end] >= '0' && data[end] <= '9') {
				end++
			}
			if rest := bytes.TrimLeft(data[end:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				out = append(append(append(out, '"'), data[i:end]...), '"')
			} else {
				out = append(out, data[i:end]...)
			}
			i, keyMayFollow = end, false
		default:
			if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
				keyMayFollow = c == '{' || c == ','
			}
			out = append(out, c)
			i++
		}
	}
	return out
}

// importFlags are those of config import.
type importFlags struct {
	node                 string
	replace, dryRun, yes bool
}

func (a *app) configImportCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import PATH...",
		Short: "Give the master tables as RocketMQ's files hold them; shows what changes and asks first",
		Long: "Give the master tables: a folder with RocketMQ's files (store/config of a broker), single files of it, or what export has\n" +
			"written as one JSON. Topics and groups are added or replace their like, offsets only grow. With --replace a table becomes the\n" +
			"file's: what is not in it is deleted, and offsets go down, too. That also ends the state BROKEN of a table. A value that neither the API takes nor a broker\n" +
			"writes, such as -5 queues, is refused with file, entry and field; then nothing is imported.",
		Example: "  tandemctl config import /opt/rocketmq/store/config --dry-run\n" +
			"  tandemctl config import topics.json subscriptionGroup.json\n" +
			"  tandemctl config import backup.json --replace --yes",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s takes a folder or files: %s ./tables", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.configImport(cmd.Context(), &f, args) },
	}
	cmd.Flags().StringVar(&f.node, "node", "", "`address` of the node; empty: the master, else the first node of --addr")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "the tables become the files': what is not in them is deleted")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show what would change")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a *app) configImport(ctx context.Context, f *importFlags, paths []string) error {
	files, err := readFiles(paths)
	if err != nil {
		return err
	}
	return a.withConfig(func(c *config.Client) error {
		node := f.node
		if node == "" {
			node, _ = c.FindMaster(ctx) // a node whose table is broken is none, and may take it nevertheless: it says so itself
		}
		admin, err := c.Admin(node)
		if err != nil {
			return wrapUsage(err)
		}
		if f.dryRun || !f.yes {
			would, err := admin.Import(ctx, files, f.replace, true)
			if err != nil {
				return wrapUsage(err)
			}
			if f.dryRun {
				return a.showImport(a.out, would)
			}
			if err := a.showImport(a.errOut, would); err != nil {
				return err
			}
			if err := a.confirm(false, "Import that into %s?", admin.Address()); err != nil {
				return err
			}
		}
		did, err := admin.Import(ctx, files, f.replace, false)
		if err != nil {
			return wrapUsage(err)
		}
		return a.showImport(a.out, did)
	})
}

// readFiles reads what the paths name, each table once.
func readFiles(paths []string) ([]*config.File, error) {
	var files []*config.File
	for _, path := range paths {
		some, err := readPath(path)
		if err != nil {
			return nil, err
		}
		for _, f := range some {
			if slices.ContainsFunc(files, func(g *config.File) bool { return g.Kind == f.Kind }) {
				return nil, usagef("%s is given twice", f.Name)
			}
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b *config.File) int { return cmp.Compare(a.Kind, b.Kind) })
	return files, nil
}

// readPath reads a folder of RocketMQ's files, one of them, or an export's JSON.
func readPath(path string) ([]*config.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &usageError{fmt.Errorf("cannot read the tables: %w", err)}
	}
	names := []string{path}
	if info.IsDir() {
		names = nil
		for _, name := range kindFiles {
			if _, err := os.Stat(filepath.Join(path, name)); !errors.Is(err, os.ErrNotExist) {
				names = append(names, filepath.Join(path, name))
			}
		}
		if len(names) == 0 {
			return nil, usagef("%s has none of %s", path, strings.Join(kindFiles, ", "))
		}
	}
	var files []*config.File
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, &usageError{fmt.Errorf("cannot read the tables: %w", err)}
		}
		if i := slices.Index(kindFiles, filepath.Base(name)); i >= 0 {
			files = append(files, &config.File{Kind: config.Kind(i + 1), Name: kindFiles[i], Data: data}) //nolint:gosec // one of four
			continue
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal(data, &all); err != nil {
			return nil, usagef("%s is none of %s, and no JSON that config export wrote (%v)", name, strings.Join(kindFiles, ", "), err)
		}
		for key, table := range all {
			i := slices.Index(kindFiles, key)
			if i < 0 {
				return nil, usagef("%s has a key %q, which is none of %s", name, key, strings.Join(kindFiles, ", "))
			}
			files = append(files, &config.File{Kind: config.Kind(i + 1), Name: key, Data: table}) //nolint:gosec // one of four
		}
	}
	return files, nil
}

// showImport writes what an import does to each table.
func (a *app) showImport(w io.Writer, results []*config.ImportResult) error {
	var rows [][]string
	for _, r := range results {
		if a.json() && w == a.out {
			if err := printProto(w, r); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{
			kindName(r.GetKind()), itoa(r.GetAdded()), itoa(r.GetChanged()), itoa(r.GetDeleted()), itoa(r.GetUnchanged()), itoa(r.GetKept()),
		})
	}
	if len(rows) > 0 {
		table(w, []string{"TABLE", "ADDED", "CHANGED", "DELETED", "UNCHANGED", "KEPT HIGHER"}, rows)
	}
	return nil
}
