package message

import "strings"

// Magic numbers of the three kinds of records.
const (
	MagicV1    uint32 = 0xDAA320A7 // topic length in one byte
	MagicV2    uint32 = 0xDAA320AB // topic length in two bytes; RocketMQ 5.1.0 and later
	MagicBlank uint32 = 0xCBD43194 // the rest of a file that the next record did not fit into
)

// Bits of SysFlag (RocketMQ: MessageSysFlag).
const (
	SysFlagCompressed  int32 = 0x1
	SysFlagMultiTags   int32 = 0x2
	SysFlagBornHostV6  int32 = 0x10
	SysFlagStoreHostV6 int32 = 0x20
	SysFlagNeedUnwrap  int32 = 0x40
	SysFlagInnerBatch  int32 = 0x80

	TransactionNone     int32 = 0x0
	TransactionPrepared int32 = 0x4
	TransactionCommit   int32 = 0x8
	TransactionRollback int32 = 0xC
	TransactionMask     int32 = 0xC

	CompressionMask int32 = 0x700
	CompressionOld  int32 = 0x000 // zlib
	CompressionLZ4  int32 = 0x100
	CompressionZstd int32 = 0x200
	CompressionZlib int32 = 0x300

	sysFlagHostV6 = SysFlagBornHostV6 | SysFlagStoreHostV6
)

// Transaction returns the transaction bits of a system flag: one of the Transaction constants.
func Transaction(sysFlag int32) int32 { return sysFlag & TransactionMask }

// Queued reports whether a record with this system flag has a unit in its queue and takes a queue offset. Prepared and
// rollback records have none.
func Queued(sysFlag int32) bool {
	t := Transaction(sysFlag)
	return t == TransactionNone || t == TransactionCommit
}

// Property names (RocketMQ: MessageConst).
const (
	PropertyKeys                  = "KEYS" // separated by one space
	PropertyTags                  = "TAGS"
	PropertyWait                  = "WAIT" // "false": do not wait for flush and slaves
	PropertyDelay                 = "DELAY"
	PropertyRetryTopic            = "RETRY_TOPIC"
	PropertyRealTopic             = "REAL_TOPIC"
	PropertyRealQueueID           = "REAL_QID"
	PropertyTransactionMessage    = "TRAN_MSG"
	PropertyProducerGroup         = "PGROUP"
	PropertyMinOffset             = "MIN_OFFSET"
	PropertyMaxOffset             = "MAX_OFFSET"
	PropertyOriginMessageID       = "ORIGIN_MESSAGE_ID"
	PropertyReconsumeTime         = "RECONSUME_TIME"
	PropertyMessageRegion         = "MSG_REGION"
	PropertyTraceOn               = "TRACE_ON"
	PropertyUniqueKey             = "UNIQ_KEY"
	PropertyMaxReconsumeTimes     = "MAX_RECONSUME_TIMES"
	PropertyInnerNum              = "INNER_NUM"
	PropertyInnerBase             = "INNER_BASE"
	PropertyDupInfo               = "DUP_INFO"
	PropertyTransactionID         = "__transactionId__"
	PropertyTransactionCheckTimes = "TRANSACTION_CHECK_TIMES"
	PropertyInstanceID            = "INSTANCE_ID"
	PropertyCluster               = "CLUSTER"
	PropertyMessageType           = "MSG_TYPE"
	PropertyShardingKey           = "__SHARDINGKEY"
	PropertyInnerMultiDispatch    = "INNER_MULTI_DISPATCH"
	PropertyInnerMultiQueueOffset = "INNER_MULTI_QUEUE_OFFSET"
	PropertyTimerDelaySec         = "TIMER_DELAY_SEC"
	PropertyTimerDelayMs          = "TIMER_DELAY_MS"
	PropertyTimerDeliverMs        = "TIMER_DELIVER_MS"
	PropertyTimerOutMs            = "TIMER_OUT_MS"
	PropertyBornHost              = "__BORNHOST"
	PropertyBornTimestamp         = "BORN_TIMESTAMP"
	PropertyCRC32                 = "__CRC32#"
	PropertyDLQOriginTopic        = "DLQ_ORIGIN_TOPIC"
	PropertyDLQOriginMessageID    = "DLQ_ORIGIN_MESSAGE_ID"
	PropertyTraceParent           = "traceparent" // W3C trace context; Tandem's, opaque to RocketMQ
	PropertyTransientPrefix       = "__RMQ.TRANSIENT."
)

// Topics that RocketMQ keeps for itself (RocketMQ: TopicValidator).
const (
	TopicAutoCreate          = "TBW102"
	TopicSchedule            = "SCHEDULE_TOPIC_XXXX"
	TopicBenchmark           = "BenchmarkTest"
	TopicTransactionHalf     = "RMQ_SYS_TRANS_HALF_TOPIC"
	TopicTrace               = "RMQ_SYS_TRACE_TOPIC"
	TopicTransactionOp       = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TopicTransactionCheckMax = "TRANS_CHECK_MAX_TIME_TOPIC"
	TopicSelfTest            = "SELF_TEST_TOPIC"
	TopicOffsetMoved         = "OFFSET_MOVED_EVENT"
	TopicCheckpoint          = "CHECKPOINT_TOPIC"
	TopicTimer               = "rmq_sys_wheel_timer"
	TopicSystemPrefix        = "rmq_sys_"
	TopicRetryPrefix         = "%RETRY%"
	TopicDeadLetterPrefix    = "%DLQ%"
)

// MaxTopic is the length of the longest topic, bytes; MaxRetryTopic that of a retry topic (prefix TopicRetryPrefix).
const (
	MaxTopic      = 127
	MaxRetryTopic = 255
)

// IsSystemTopic reports whether RocketMQ keeps the topic for itself.
func IsSystemTopic(topic string) bool {
	switch topic {
	case TopicAutoCreate, TopicSchedule, TopicBenchmark, TopicTransactionHalf, TopicTrace, TopicTransactionOp,
		TopicTransactionCheckMax, TopicSelfTest, TopicOffsetMoved, TopicCheckpoint:
		return true
	}
	return strings.HasPrefix(topic, TopicSystemPrefix)
}

// IsInternalTopic reports whether only the store itself may write to the topic: what a client put there would be
// taken for a delayed message, a half message or a timer.
func IsInternalTopic(topic string) bool {
	switch topic {
	case TopicSchedule, TopicTransactionHalf, TopicTransactionOp, TopicTransactionCheckMax, TopicSelfTest, TopicOffsetMoved:
		return true
	}
	return strings.HasPrefix(topic, TopicSystemPrefix)
}
