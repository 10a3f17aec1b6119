// Package service is the shell around every Tandem service: flags, configuration, signals, telemetry, an ordered group of
// actors, exit codes. A service's main is one call:
//
//	func main() {
//		os.Exit(service.Main(service.Spec[Config]{Name: "storage", NewConfig: defaults, Validate: validate, Build: build}))
//	}
//
// Configuration is a struct. It takes its defaults from NewConfig, then one YAML file (-config), then the environment
// (TANDEM_STORAGE_HA_LISTEN_PORT for ha.listenPort), then -set key=value. An unknown key or variable is an error that
// names its place and the nearest known key; all errors are told at once. Keys are the yaml tags, else the field names with
// a small first letter. Durations are written 500ms, sizes 32KiB (type Size), lists [a, b] or, outside YAML, a,b.
//
//	flags -> config -> validate -> telemetry -> Build -> actors start in order
//	     first return or signal -> actors stop in reverse, each waited for -> deferred closes in reverse -> telemetry flushes
//
// Exit codes: 0 done or stopped by a signal; 1 fatal, told in one last line, or what a command found; 2 wrong flags or
// configuration; 3 a command could not do its work; 130 a second signal.
//
// What this package does not do: it never starts an actor again, and it reloads no configuration.
package service
