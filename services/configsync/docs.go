package main

// docs say in one line what each key of the config means; -print-config prints them.
var docs = map[string]string{ //nolint:gochecknoglobals // a table
	"brokerClusterName": "cluster of this broker; the same as its storage's",
	"brokerName":        "name of this broker; the same as its storage's",
	"brokerId":          "of this node; the same as its storage's",
	"storePathRootDir":  "folder whose config/ has the tables, as RocketMQ's; it may be the storage's",
	"listen":            "address of gRPC",
	"advertise":         "how other nodes reach listen; empty: listen",
	"peers":             "gRPC addresses of the config sync nodes of the group, this one's advertise included; empty: it is alone",

	"storage.address":  "gRPC address of this node's storage, which has the role; empty: none, then brokerRole and epoch count",
	"storage.interval": "time between two looks at its role",
	"storage.timeout":  "silence of the storage after which a master is none any more",

	"master.legacy":           "follow a RocketMQ broker, as the storage does with its key of the same name",
	"master.address":          "remoting port of that broker, HOST:10911",
	"master.takeLowerOffsets": "take that broker's offsets also where they are lower: it has no word for a reset",

	"remoting.listen":         "address on which RocketMQ's slaves are answered, as is the port two below it; empty: none",
	"remoting.brokerAddr":     "how they reach it; empty: remoting.listen",
	"remoting.haServerAddr":   "how they reach the storage's raw port",
	"remoting.nameServers":    "name servers at which an open master registers; empty: none",
	"remoting.maxConnections": "most connections of RocketMQ's",
	"remoting.maxFrame":       "largest frame either way; RocketMQ takes none above 16MiB unless it is told to",

	"brokerRole":                  "without a storage: ASYNC_MASTER, SYNC_MASTER or SLAVE",
	"epoch":                       "without a storage: the reign of the master; the next master needs a higher one",
	"startWait":                   "how long a master that opens waits for peers that do not answer",
	"syncInterval":                "time between two rounds of a slave",
	"syncTimeout":                 "longest silence of a node that is asked",
	"flushConsumerOffsetInterval": "gathered offset commits are saved, and RocketMQ's JSON files rewritten, at least that often",
	"maxTopicQueueNums":           "most queues that a topic may have",

	"tls.certFile":          "certificate (PEM) of the gRPC port; empty: no TLS",
	"tls.keyFile":           "its private key (PEM)",
	"tls.caFile":            "authorities (PEM) that other nodes' and clients' certificates are checked with; empty: the system's",
	"tls.requireClientCert": "refuse gRPC clients without a certificate of tls.caFile",
}
