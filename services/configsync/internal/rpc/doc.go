// Package rpc is the only door of a config sync node for clients and peers: the gRPC services ConfigSyncService, TopicService,
// SubscriptionGroupService, OffsetService and ConfigAdminService.
//
// A handler checks the request field by field, asks the role where it changes something, calls the owner of the data (registry) and
// translates the answer. It returns errdefs errors; the interceptors of pkg/grpcx make codes and details of them. No reply exceeds
// 4 MiB: lists have pages, tables are streamed.
//
// Changes are for the open master. What is read is what this node has; only a node that is about to lead answers nothing, as it
// may not have heard yet what was committed elsewhere.
//
// RocketMQ's names: AdminBrokerProcessor#getAllTopicConfig and its like are Fetch, updateAndCreateTopic CreateTopic and UpdateTopic,
// ConsumerManageProcessor#updateConsumerOffset Commit, resetOffset Reset.
//
// What this package does not do: it merges nothing and keeps no state between calls.
package rpc
