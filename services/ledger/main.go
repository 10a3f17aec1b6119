// Command ledger is the ledger service: one member of a group that elects a leader and keeps one log by DLedger's pushes.
// See README.md.
package main

import (
	"context"
	"os"

	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
)

// version is set by the build.
var version string

func main() {
	os.Exit(service.Main(service.Spec[Config]{
		Name: "ledger", Version: version,
		Summary:   "keeps one log together with the other members of a group, which elect a leader",
		NewConfig: defaultConfig, Docs: docs,
		Validate: (*Config).Validate,
		Health: func(ctx context.Context, c *Config) error {
			return grpcx.CheckLocal(ctx, c.Listen, c.TLS.TLS())
		},
		Build:    build,
		Commands: []service.Command[Config]{checkCommand(), bootstrapCommand()},
	}))
}
