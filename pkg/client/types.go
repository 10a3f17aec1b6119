package client

import (
	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
)

// Types of the storage's API.
type (
	// Message is what a producer hands over.
	Message = storagev1.Message
	// Result says where one message stands and how far it got.
	Result = storagev1.PutResult
	// Status says where the bytes of a message are.
	Status = storagev1.PutStatus
	// StoredMessage is a record of the log.
	StoredMessage = storagev1.StoredMessage
	// Queue is a queue with its first and next queue offset.
	Queue = storagev1.Queue
	// NodeStatus is everything a node tells about itself.
	NodeStatus = storagev1.StatusResponse
)

// Statuses of a put; the comments of the proto say what each one means.
const (
	StatusOK                      = storagev1.PutStatus_PUT_STATUS_PUT_OK
	StatusFlushDiskTimeout        = storagev1.PutStatus_PUT_STATUS_FLUSH_DISK_TIMEOUT
	StatusFlushSlaveTimeout       = storagev1.PutStatus_PUT_STATUS_FLUSH_SLAVE_TIMEOUT
	StatusSlaveNotAvailable       = storagev1.PutStatus_PUT_STATUS_SLAVE_NOT_AVAILABLE
	StatusInSyncReplicasNotEnough = storagev1.PutStatus_PUT_STATUS_IN_SYNC_REPLICAS_NOT_ENOUGH
	StatusDiskFull                = storagev1.PutStatus_PUT_STATUS_DISK_FULL
	StatusMessageIllegal          = storagev1.PutStatus_PUT_STATUS_MESSAGE_ILLEGAL
	StatusNotMaster               = storagev1.PutStatus_PUT_STATUS_NOT_MASTER
)

// Stored reports whether a message with this status is on the master's log.
func Stored(s Status) bool {
	switch s {
	case StatusOK, StatusFlushDiskTimeout, StatusFlushSlaveTimeout, StatusSlaveNotAvailable:
		return true
	default:
		return false
	}
}

// RoleName returns a role as RocketMQ's config writes it: SYNC_MASTER, ASYNC_MASTER, SLAVE.
func RoleName(r storagev1.Role) string { return nodes.RoleName(r) }

// StatusName returns a put's status as RocketMQ writes it: PUT_OK, FLUSH_SLAVE_TIMEOUT, ...
func StatusName(s Status) string { return nodes.EnumName(s.String(), "PUT_STATUS_", int32(s)) }
