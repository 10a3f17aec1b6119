// Command storage is the storage service: the commitLog of a broker, replicated from a master to slaves. See README.md.
package main

import (
	"context"
	"os"
	"runtime"

	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/service"
)

// version is set by the build.
var version string

// ballast lies untouched and so takes no memory, but counts as live: the garbage collector, which runs when the heap has doubled,
// lets that much garbage gather. Without it a storage, which holds a few MiB, would collect tens of times a second under load.
var ballast = make([]byte, 32<<20)

func main() {
	runtime.KeepAlive(ballast) // what nobody uses may be left out
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
