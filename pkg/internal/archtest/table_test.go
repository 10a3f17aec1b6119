package archtest

// The module, and the words that a table entry may use besides names of packages.
const (
	module = "github.com/tandemlog/tandem"

	anything = "*"   // anything in the module that the compiler lets through
	anyPkg   = "pkg" // everything under pkg/ that is not for tests
	own      = "own" // every package of the same service
	gen      = "gen" // code generated from the protos
)

// testOnly packages may be imported by tests and by whoever has the right to anything.
func testOnly() []string {
	return []string{"pkg/testkit", "pkg/vfs/memfs", "pkg/service/servicetest", "pkg/client/clienttest", "pkg/client/clienttest/configtest", "services/storage/internal/topics/topicstest", "pkg/internal/archtest"}
}

// table says for each package what it may import of this module. A short name is a package of the same service, for one
// under deploy/e2e one beside it, or else one under pkg/. errdefs is free for all.
func table() map[string]string {
	return map[string]string{
		"pkg/watermark":                    "",
		"pkg/errdefs":                      "",
		"pkg/vfs":                          "",
		"pkg/vfs/memfs":                    "vfs",
		"pkg/durable":                      "vfs",
		"pkg/mappedfile":                   "vfs durable",
		"pkg/telemetry":                    "",
		"pkg/grpcx":                        "grpcx/stray",
		"pkg/grpcx/stray":                  "",
		"pkg/identity":                     "",
		"pkg/nearest":                      "",
		"pkg/sleep":                        "",
		"pkg/peercert":                     "grpcx",
		"pkg/service":                      "nearest telemetry service/ballast service/build service/size",
		"pkg/service/build":                "",
		"pkg/service/ballast":              "",
		"pkg/service/checkargs":            "",
		"pkg/service/servicetest":          "service telemetry testkit",
		"pkg/service/size":                 "",
		"pkg/client":                       "client/internal/nodes client/internal/attempt client/internal/putspan client/internal/watchdog grpcx gen sleep",
		"pkg/client/config":                "client/internal/nodes client/internal/attempt client/internal/watchdog grpcx gen sleep",
		"pkg/client/consumer":              "client client/config client/internal/nodes sleep",
		"pkg/client/ledger":                "client/internal/nodes client/internal/attempt client/internal/group client/internal/watchdog grpcx gen sleep",
		"pkg/client/internal/group":        "client/internal/nodes grpcx gen sleep",
		"pkg/client/internal/nodes":        "grpcx gen sleep",
		"pkg/client/internal/attempt":      "client/internal/nodes grpcx sleep",
		"pkg/client/internal/putspan":      "client/internal/nodes gen",
		"pkg/client/internal/watchdog":     "",
		"pkg/client/clienttest":            "client grpcx gen",
		"pkg/client/clienttest/configtest": "client/clienttest grpcx gen",
		"pkg/testkit":                      anything,
		"pkg/internal/archtest":            "",

		"services/storage":                                 "own pkg gen",
		"services/storage/internal/message":                "",
		"services/storage/internal/commitlog":              "message mappedfile durable watermark vfs commitlog/checkpoint commitlog/recovery commitlog/cut commitlog/mend",
		"services/storage/internal/commitlog/checkpoint":   "durable mappedfile vfs",
		"services/storage/internal/commitlog/cut":          "mappedfile durable vfs",
		"services/storage/internal/commitlog/mend":         "message mappedfile durable vfs",
		"services/storage/internal/commitlog/recovery":     "message mappedfile vfs",
		"services/storage/internal/check":                  "message consumequeue watermark",
		"services/storage/internal/check/folder":           "message check commitlog commitlog/checkpoint commitlog/cut commitlog/mend consumequeue consumequeue/queuefile consumequeue/summary epoch mappedfile durable vfs",
		"services/storage/internal/guard":                  "vfs",
		"services/storage/internal/damage":                 "check",
		"services/storage/internal/repair":                 "message commitlog/mend epoch check",
		"services/storage/internal/epoch":                  "durable vfs",
		"services/storage/internal/role":                   "epoch durable vfs watermark role/change role/feed role/peers role/saved role/slave role/sums",
		"services/storage/internal/role/change":            "epoch watermark role/peers",
		"services/storage/internal/role/feed":              "epoch watermark",
		"services/storage/internal/role/peers":             "epoch sleep",
		"services/storage/internal/role/slave":             "epoch watermark role/feed role/peers role/sums",
		"services/storage/internal/role/saved":             "epoch durable vfs",
		"services/storage/internal/role/sums":              "epoch",
		"services/storage/internal/consumequeue":           "mappedfile durable watermark vfs consumequeue/queuefile consumequeue/summary consumequeue/unit",
		"services/storage/internal/consumequeue/queuefile": "mappedfile vfs",
		"services/storage/internal/consumequeue/summary":   "durable vfs",
		"services/storage/internal/consumequeue/unit":      "",
		"services/storage/internal/keyindex":               "mappedfile vfs",
		"services/storage/internal/dispatch":               "message watermark consumequeue",
		"services/storage/internal/schedule":               "",
		"services/storage/internal/replication":            "replication/wire replication/link replication/acks watermark",
		"services/storage/internal/replication/wire":       "",
		"services/storage/internal/replication/link":       "replication/wire watermark",
		"services/storage/internal/replication/acks":       "watermark",
		"services/storage/internal/store":                  "message watermark commitlog consumequeue vfs",
		"services/storage/internal/rollback":               "message commitlog mappedfile vfs",
		"services/storage/internal/topics":                 "topics/chunk watermark grpcx gen sleep",
		"services/storage/internal/topics/chunk":           "",
		"services/storage/internal/topics/topicstest":      "topics/chunk grpcx gen",
		"services/storage/internal/rpc":                    "own grpcx gen service/ballast watermark vfs",
		"services/storage/internal/benchmark":              "own grpcx gen service/ballast watermark vfs",
		"services/configsync":                              "own pkg gen",
		"services/configsync/internal/table":               "table/entry table/ptree",
		"services/configsync/internal/table/entry":         "table/fastjson table/packed",
		"services/configsync/internal/table/fastjson":      "",
		"services/configsync/internal/table/packed":        "",
		"services/configsync/internal/table/ptree":         "",
		"services/configsync/internal/table/chunk":         "table table/entry table/fastjson table/packed",
		"services/configsync/internal/table/jsonfile":      "table table/entry table/fastjson",
		"services/configsync/internal/registry":            "table table/entry table/chunk table/jsonfile registry/disk registry/journal registry/whole durable vfs watermark",
		"services/configsync/internal/registry/disk":       "table table/entry table/fastjson table/chunk table/jsonfile registry/journal durable vfs",
		"services/configsync/internal/registry/journal":    "vfs",
		"services/configsync/internal/registry/whole":      "table table/chunk",
		"services/configsync/internal/wire":                "table table/entry gen",
		"services/configsync/internal/storage":             "watermark grpcx gen",
		"services/configsync/internal/role":                "storage syncer table table/entry watermark sleep",
		"services/configsync/internal/role/told":           "durable vfs",
		"services/configsync/internal/syncer":              "table table/entry table/chunk wire grpcx gen sleep",
		"services/configsync/internal/remoting":            "remoting/frame",
		"services/configsync/internal/remoting/frame":      "table/fastjson",
		"services/configsync/internal/remoting/follow":     "remoting table table/entry table/jsonfile",
		"services/configsync/internal/remoting/serve":      "remoting remoting/frame table table/entry table/jsonfile",
		"services/configsync/internal/remoting/register":   "remoting remoting/frame table table/entry table/fastjson watermark",
		"services/configsync/internal/rpc":                 "own grpcx gen watermark",
		"services/configsync/internal/rpc/offset":          "registry storage table table/entry rpc/paging gen",
		"services/configsync/internal/rpc/paging":          "",
		"services/configsync/internal/benchmark":           "registry rpc table table/chunk table/entry table/jsonfile wire grpcx gen vfs",
		"services/ledger":                                  "own pkg gen",
		"services/ledger/internal/check":                   "consensus/raft entrylog/entry entrylog/meta entrylog/recovery mappedfile vfs",
		"services/ledger/internal/consensus":               "consensus/push consensus/raft",
		"services/ledger/internal/consensus/push":          "consensus/raft",
		"services/ledger/internal/consensus/raft":          "",
		"services/ledger/internal/consensus/simtest":       anything,
		"services/ledger/internal/entrylog":                "consensus consensus/push consensus/raft entrylog/entry entrylog/meta entrylog/recovery mappedfile durable vfs",
		"services/ledger/internal/entrylog/entry":          "consensus/raft",
		"services/ledger/internal/entrylog/meta":           "consensus/raft durable vfs",
		"services/ledger/internal/entrylog/recovery":       "consensus/raft entrylog/entry entrylog/meta mappedfile",
		"services/ledger/internal/node":                    "consensus consensus/push consensus/raft watermark",
		"services/ledger/internal/once":                    "consensus consensus/raft entrylog/entry node durable vfs watermark",
		"services/ledger/internal/peer":                    "consensus/raft entrylog/entry refusal grpcx gen",
		"services/ledger/internal/refusal":                 "",
		"services/ledger/internal/rpc":                     "own watermark grpcx gen",
		"services/tandemctl":                               "own pkg gen",
		"deploy/e2e/demo":                                  "pkg gen faults",
		"deploy/e2e/bench":                                 "pkg gen faults rocketmq",
		"deploy/e2e/interop":                               "pkg gen faults rocketmq",
		"deploy/e2e/rocketmq":                              "",
		"deploy/e2e/torture":                               "pkg gen faults",
		"deploy/e2e/tortureledger":                         "pkg gen faults",
		"deploy/e2e/faults":                                "",
	}
}

// pure packages decide and do nothing: of them, and of epoch the files that do not touch the disk, nothing may import
// impure() or another module.
func pure() []string {
	return []string{
		"services/storage/internal/message",
		"services/storage/internal/epoch",
		"services/storage/internal/replication/wire",
		"services/storage/internal/topics/chunk",
		"services/configsync/internal/table",
		"services/configsync/internal/table/entry",
		"services/configsync/internal/table/fastjson",
		"services/configsync/internal/table/packed",
		"services/configsync/internal/table/ptree",
		"services/configsync/internal/table/chunk",
		"services/configsync/internal/table/jsonfile",
		"services/configsync/internal/remoting/frame",
		"services/ledger/internal/consensus",
		"services/ledger/internal/consensus/push",
		"services/ledger/internal/consensus/raft",
	}
}

// impure are packages of the standard library, with what is below them, and the exception.
func impure() (forbidden []string, except string) {
	return []string{"net", "os", "time", "sync", "context", "log/slog", "syscall"}, "net/netip"
}

// The top level of the repository, exactly. Ignored by git and .git itself do not count.
func topLevel() []string {
	return []string{
		"go.mod", "go.sum", "proto", "gen", "services", "pkg", "deploy", "buf.yaml", "buf.gen.yaml", "Makefile", "README.md",
		"LICENSE", ".ci", ".golangci.yml", ".editorconfig", ".gitignore", ".github",
	}
}

const (
	maxFile     = 500  // lines
	maxFunction = 60   // lines from func to the closing brace
	maxPackage  = 1500 // lines of all files that are no tests
)

// unboundPackages may be longer: one file per command, and tests of whole binaries.
func unboundPackages() []string {
	return []string{"services/tandemctl", "deploy/e2e/bench", "deploy/e2e/demo", "deploy/e2e/interop", "deploy/e2e/torture", "deploy/e2e/tortureledger"}
}

func vagueNames() []string {
	return []string{"util", "utils", "common", "types", "helper", "helpers", "manager", "base", "misc"}
}
