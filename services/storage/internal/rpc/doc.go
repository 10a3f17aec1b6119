// Package rpc is the only door of a storage for clients and peers: the gRPC services MessageService, StorageAdminService
// and ReplicationService, and the client side of the last one that role asks its peers through.
//
// A handler checks the request field by field, calls the owner of the rule (store, role) and translates the answer. It
// returns errdefs errors; the interceptors of pkg/grpcx make codes and details of them. No reply exceeds the limit that
// the server was given: lists have pages, reads stop before it, ranges are streamed.
//
// What this package does not do: it decides nothing and keeps no state between calls.
package rpc
