// Command configsync is the config sync service: topics, consumer offsets, delay offsets and subscription groups of a broker, kept
// on a master and every slave. See README.md.
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
		Name: "configsync", Version: version,
		Summary:   "keeps the topics, groups and offsets of a broker, and brings them from the master to its slaves",
		NewConfig: defaultConfig, Docs: docs,
		Validate: (*Config).Validate,
		Health: func(ctx context.Context, c *Config) error {
			return grpcx.CheckLocal(ctx, c.Listen, c.TLS.TLS())
		},
		Build:    build,
		Commands: []service.Command[Config]{checkCommand()},
	}))
}
