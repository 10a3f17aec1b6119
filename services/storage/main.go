// Command storage is the storage service: the commitLog of a broker, replicated from a master to slaves. See README.md.
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
		Name: "storage", Version: version,
		Summary:   "keeps the commitLog of a broker, streams it to slaves or follows a master",
		NewConfig: defaultConfig, Docs: docs, Foreign: rocketMQ,
		Validate: (*Config).Validate,
		Health: func(ctx context.Context, c *Config) error {
			return grpcx.CheckLocal(ctx, c.Listen, c.TLS.TLS())
		},
		Build:    build,
		Commands: []service.Command[Config]{checkCommand(), adoptCommand()},
	}))
}
