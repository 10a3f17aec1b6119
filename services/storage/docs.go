package main

// docs say in one line what each key of the config means; -print-config prints them.
var docs = map[string]string{ //nolint:gochecknoglobals // a table
	"brokerClusterName": "cluster of this broker; the same on all its nodes; letters, digits and -_.%|",
	"brokerName":        "name of this broker; the same on the master and its slaves; letters, digits and -_.%|",
	"brokerId":          "of this node, unlike that of any other of the broker; a SLAVE's is not 0",
	"brokerRole":        "ASYNC_MASTER, SYNC_MASTER or SLAVE at the first start; after it the saved role holds, which promote and demote change",
	"brokerIP1":         "IP address of this store in records and message ids; empty: that of advertise",
	"storePathRootDir":  "folder of the log, the queues and this node's state",

	"listen":      "address of gRPC: clients, other nodes, tandemctl",
	"haListen":    "address of the raw stream to slaves",
	"advertise":   "how other nodes reach listen; empty: listen",
	"haAdvertise": "how slaves reach haListen; empty: haListen",

	"mappedFileSizeCommitLog":    "length of each file of the log; 0: that of the files or of the master's, else 1GiB. Another size than theirs is an error",
	"mappedFileSizeConsumeQueue": "length of each file of a queue, a multiple of 20; 0: that of the files, else RocketMQ's",

	"flushDiskType":                  "SYNC_FLUSH: PUT_OK means on the disk; ASYNC_FLUSH: in the page cache, on the disk soon",
	"flushIntervalCommitLog":         "ASYNC_FLUSH: time between two looks at what is to be flushed",
	"flushCommitLogLeastPages":       "ASYNC_FLUSH: pages of 4KiB that are worth a flush",
	"flushCommitLogThoroughInterval": "ASYNC_FLUSH: time after which any byte is flushed",
	"syncFlushTimeout":               "SYNC_FLUSH: longest wait of a put, then FLUSH_DISK_TIMEOUT",

	"maxMessageSize":        "largest body of a message",
	"defaultTopicQueueNums": "queues of a topic that a put creates, and of every topic without a topic table",
	"autoCreateTopicEnable": "a put to a topic that is not in the topic table creates it; else it is refused",
	"messageDelayLevel":     "delays of the levels 1, 2, ... of delayed messages",
	"enabledAppendPropCRC":  "records carry a checksum of all their bytes (__CRC32#), which RocketMQ reads from 5.2 on",

	"haSendHeartbeatInterval": "time between two signs of life on a link without records",
	"haHousekeepingInterval":  "silence after which a link is given up; above haSendHeartbeatInterval",
	"haTransferBatchSize":     "largest piece sent to a RocketMQ slave at once",
	"haSlaveFallbehindMax":    "bytes that a slave may lack and still count as in sync",
	"slaveTimeout":            "longest wait of a put for slaves, then FLUSH_SLAVE_TIMEOUT",

	"ha.peers":                 "gRPC addresses of all nodes of the group, each once and this one's advertise word for word; other slaves confirm no puts; empty: it is alone",
	"ha.masterRole":            "what a node of this group becomes when it is promoted, SYNC_MASTER or ASYNC_MASTER; the same on all",
	"ha.required":              "slaves that must confirm a put for PUT_OK on a SYNC_MASTER",
	"ha.refuseWithoutReplicas": "refuse puts while fewer than ha.required slaves are in sync",
	"ha.startWait":             "how long a starting ASYNC_MASTER waits for its peers",
	"ha.rollbackKeep":          "bytes cut from the log that may be kept under rollback/",
	"ha.frameSize":             "largest piece sent to a Tandem slave at once",
	"ha.maxSlaves":             "slaves served at a time",
	"ha.legacySlaves":          "serve plain RocketMQ slaves",
	"ha.legacyPeers":           "IP addresses that these may come from; empty: any",
	"ha.startFrom":             "where an empty RocketMQ slave starts: first or last file",
	"ha.congestionControl":     "the kernel's congestion control for links, as bbr; empty: the system's",

	"master.address":     "of a SLAVE: gRPC address of the storage to follow, or with master.legacy the raw (HA) address of a RocketMQ broker; empty: the open master among ha.peers",
	"master.legacy":      "the master is a RocketMQ broker",
	"master.firstOffset": "first offset of that broker's log where it is known to be later than 0",
	"allowDataLoss":      "an operator's word that what would have to be lost may be: a slave cuts what cannot be kept, a master opens with its own log",

	"configsync.address": "gRPC address of this node's config sync service; empty: none, every legal topic can be used",

	"tls.certFile":          "certificate (PEM) of the gRPC port; empty: no TLS",
	"tls.keyFile":           "its private key (PEM)",
	"tls.caFile":            "authorities (PEM) that other nodes' and clients' certificates are checked with; empty: the system's",
	"tls.requireClientCert": "refuse gRPC clients without a certificate of tls.caFile",
	"maxReplySize":          "largest reply of gRPC; 0: what the largest message needs",
}

// rocketMQ are keys of broker.conf that a storage does not have, and what takes their place.
var rocketMQ = map[string]string{ //nolint:gochecknoglobals // a table
	"fileReservedTime":            noRetention,
	"deleteWhen":                  noRetention,
	"diskMaxUsedSpaceRatio":       noRetention,
	"storePathCommitLog":          "leave it out: the log is in commitlog/ below storePathRootDir",
	"storePathConsumeQueue":       "leave it out: the queues are in consumequeue/ below storePathRootDir",
	"namesrvAddr":                 "leave it out: a storage registers with no name server; the config sync service does, see its remoting.nameServers",
	"listenPort":                  "write listen: HOST:PORT, the address of gRPC",
	"haListenPort":                "write haListen: HOST:PORT",
	"haMasterAddress":             "write master: {address: HOST:PORT, legacy: true}, the raw (HA) address of the RocketMQ master",
	"inSyncReplicas":              "write ha: {required: N}, the number of slaves without the master",
	"brokerIP2":                   "write haAdvertise: HOST:PORT",
	"autoCreateSubscriptionGroup": "leave it out: groups are kept by the config sync service",
}

const noRetention = "leave it out: a storage removes no files of the log by age yet"
