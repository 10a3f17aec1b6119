package main

// docs say in one line what each key of the config means; -print-config prints them.
var docs = map[string]string{ //nolint:gochecknoglobals // a table
	"group":              "name of the group; the same on all members",
	"selfId":             "which of the members this node is",
	"peers":              "all members, this node included, as DLedger writes them: n0-host:port; the same on all; empty: it is alone",
	"preferredLeaderIds": "members that shall lead when they can, the first one first; the same on all",
	"storePath":          "folder of this node; DLedger's is {storeBaseDir}/dledger-{selfId}",
	"listen":             "address of gRPC",

	"flush":                       "sync: an entry is on the disks of a majority before it is acknowledged; async: in their page caches",
	"flushFileInterval":           "async: time between two flushes",
	"mappedFileSizeForEntryData":  "length of each file of entries; 0: that of the files, else DLedger's 1GiB",
	"mappedFileSizeForEntryIndex": "length of each file of the index; 0: that of the files, else DLedger's 160MiB",
	"verifyOnStart":               "read the whole log at the start, not only what is newer than the last checkpoint",

	"minElectionTimeout":             "shortest silence of the leader after which a follower stands for election",
	"maxElectionTimeout":             "longest such silence; each time it is random between the two",
	"heartBeatTimeInterval":          "time between two signs of life of the leader",
	"leaderLease":                    "answer reads without asking the followers while they owe the leader their silence; clock rates must not differ by a tenth",
	"leadershipTransferWaitTimeout":  "longest wait for the target of a transfer to have all entries",
	"maxLeadershipTransferWaitIndex": "entries that the target of a transfer may lack",

	"maxBodySize":           "largest body of an entry; 0: what fits into an entry of 4MiB",
	"maxBatchEntries":       "most entries of one append",
	"maxBatchSize":          "largest append, bytes of its bodies",
	"appendTimeout":         "longest wait of an append for a majority",
	"maxPendingRequestsNum": "entries that are not committed yet, above which appends are refused",
	"idempotenceWindow":     "last entries of which the idempotence keys are remembered",

	"tls.certFile":          "certificate (PEM) of the gRPC port; empty: no TLS",
	"tls.keyFile":           "its private key (PEM)",
	"tls.caFile":            "authorities (PEM) that other members' and clients' certificates are checked with; empty: the system's",
	"tls.requireClientCert": "refuse gRPC clients without a certificate of tls.caFile",
	"maxReplySize":          "largest reply of gRPC",
}
