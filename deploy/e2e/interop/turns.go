package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// How much each side writes.
const (
	javaEntries   = 600
	tandemEntries = 400
	javaMore      = 90
)

// turns is scenario e.
func turns(ctx context.Context, s *stage) (string, error) {
	d, err := s.dledger(ctx)
	if err != nil {
		return "", err
	}
	fresh, err := ofTandem(ctx, d)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(s.dir, "turns")
	written, err := d.run(ctx, "write", folder, fmt.Sprint(javaEntries), "1")
	if err != nil {
		return "", err
	}
	if err := d.readAs(ctx, folder, written); err != nil {
		return "", err
	}
	say("DLedger %s wrote %d entries, its leader away for a third of them", dledgerVersion, len(written))
	g, err := s.group(folder)
	if err != nil {
		return "", err
	}
	both, err := onJavas(ctx, d, g, written)
	if err != nil {
		return "", err
	}
	last, err := backToJava(ctx, d, g, both)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("DLedger %s reads to the end %d entries that Tandem wrote from nothing and %d of a folder that both wrote in turn; "+
		"Tandem reads there what DLedger wrote before and after it, %d entries", dledgerVersion, fresh, len(both), last), nil
}

// ofTandem has Tandem write a group's folders from nothing, and DLedger read them.
func ofTandem(ctx context.Context, d *dledger) (int, error) {
	g, err := d.group(filepath.Join(d.dir, "fresh"))
	if err != nil {
		return 0, err
	}
	if err := g.tool(ctx, "bootstrap"); err != nil {
		return 0, err
	}
	all, err := session(ctx, g, nil, tandemEntries)
	if err != nil {
		return 0, err
	}
	if err := d.readAs(ctx, g.folder, all); err != nil {
		return 0, err
	}
	say("Tandem wrote %d entries from nothing, its leader killed half-way; DLedger reads all of them on all three nodes", len(all))
	return len(all), nil
}

// session starts Tandem's group, holds what it shows against what was there, appends n entries, stops it and returns all entries.
func session(ctx context.Context, g *group, before []string, n int) ([]string, error) {
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	found, err := g.entries(ctx)
	if err != nil {
		return nil, err
	}
	if err := begins(before, found); err != nil {
		return nil, fmt.Errorf("what Tandem shows: %w", err)
	}
	if err := g.load(ctx, n); err != nil {
		return nil, err
	}
	all, err := g.entries(ctx)
	if err != nil {
		return nil, err
	}
	return all, g.stop(ctx)
}

// onJavas has Tandem go on in the folders that DLedger wrote, and DLedger read them again.
func onJavas(ctx context.Context, d *dledger, g *group, written []string) ([]string, error) {
	all, err := session(ctx, g, written, tandemEntries)
	if err != nil {
		return nil, err
	}
	if err := d.readAs(ctx, g.folder, all); err != nil {
		return nil, err
	}
	say("Tandem shows them on all three nodes and appended to %d, its leader killed half-way; DLedger reads all of them on all three", len(all))
	return all, nil
}

// backToJava has DLedger's group go on in these folders, and then Tandem's again.
func backToJava(ctx context.Context, d *dledger, g *group, both []string) (int, error) {
	more, err := d.run(ctx, "write", g.folder, fmt.Sprint(javaMore), "2")
	if err != nil {
		return 0, err
	}
	raw, err := d.run(ctx, "read", g.folder, "n0")
	if err != nil {
		return 0, err
	}
	own := max(0, len(raw)-len(more)) // where its own part begins
	if err := errors.Join(begins(both, raw[:own]), sameEntries(more, raw[own:])); err != nil {
		return 0, fmt.Errorf("DLedger, after its own turn: %w", err)
	}
	if err := g.tool(ctx, "check"); err != nil {
		return 0, err
	}
	all, err := session(ctx, g, append(both[:len(both):len(both)], raw[len(both):]...), 1)
	if err != nil {
		return 0, err
	}
	say("DLedger's group went on there for %d entries, its leader away for a third of them; Tandem shows them all and goes on", len(more))
	return len(all), nil
}
