// Package config is what a Go program imports to use Tandem's config sync: topics, subscription groups, offsets, and the nodes
// that keep them. Where RocketMQ has DefaultMQAdminExt for these and a RemoteBrokerOffsetStore, here are Topics, Groups, Offsets
// and Admin.
//
//	c, err := config.Dial(config.Options{Addresses: []string{"10.0.0.1:10921", "10.0.0.2:10921"}})
//	defer c.Close()
//	topic, err := c.Topics().Create(ctx, &config.Topic{Name: "orders", ReadQueues: 8, WriteQueues: 8}, nil)
//
// # What became of a change
//
//	(result, nil)            saved on the master.
//	(nil, ErrOutcomeUnknown) the request left, the answer did not come: it may have been done.
//	(nil, other error)       nothing was changed.
//
// What certainly was not done is tried again until the deadline, at the master that NOT_MASTER names or that is found. Commits of
// offsets, which only grow, are tried again whatever went wrong.
//
// # Which node
//
//	change ──▶ the master as far as known ──NOT_MASTER──▶ the one that it names
//	                                      ──no answer──▶ survey of all addresses ─▶ of the masters that they name ─▶ a pause, and again
//	read ────▶ the master where there is one, else the first address that answers (Options.Local: that one at once)
//	Admin ───▶ exactly one node
//
// Requests and answers are the generated types of tandem.configsync.v1: their comments say what each field means.
//
// What this package does not do: it has no CommitStream, as CommitBatch carries 1,024 offsets; it starts no goroutine but those of
// a call, and it caches nothing.
package config
