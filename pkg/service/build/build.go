package build

import (
	"runtime"
	"runtime/debug"
)

// Version is the module's version, the commit where the binary was built in a checkout, and Go's version.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			version += " " + s.Value[:12]
		}
	}
	if version == "" {
		version = "devel"
	}
	return version + " " + runtime.Version()
}
