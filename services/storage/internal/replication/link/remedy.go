package link

// remedies say what to do about a connection that was refused for its first bytes, by reason.
var remedies = map[string]string{ //nolint:gochecknoglobals // a table
	"silent":         "none is needed where a port scan or a health check connects; a check of health belongs on the debug port",
	"short":          "none is needed where a port scan or a health check connects; a check of health belongs on the debug port",
	"text":           "this is the raw port of replication: HTTP belongs on the debug port, gRPC on `listen`",
	"tls":            "this is the raw port of replication, which has no TLS: gRPC clients belong on `listen`",
	"negative":       "a RocketMQ slave reports offsets, and a Tandem slave a token: something else connects to this port",
	"beyond":         "the slave has more than this log: it followed another master; rebuild it in an empty folder",
	"below_first":    "what the slave lacks was removed here: rebuild it in an empty folder",
	"token":          "none is needed: a Tandem slave asks for a token anew; where this repeats, look at its log",
	"start":          "the slave begins at another offset than it was told: look at its log",
	"legacy_refused": "to serve plain RocketMQ slaves set ha.legacySlaves: true, and where ha.legacyPeers is set name this address there",
	"not_open":       "wait until this node has opened: its Status says what it waits for",
	"too_many":       "raise ha.maxSlaves, or stop a slave",
	"crowded_out":    "find out who opens so many connections to this port",
	"stopping":       "none is needed: this node is stopping",
}

// Remedy returns what to do about a connection that was refused for that reason.
func Remedy(reason string) string { return remedies[reason] }
