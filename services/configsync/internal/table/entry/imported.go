package entry

import (
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// MaxQueues bounds the queues of a topic, as in RocketMQ: the offsets of all of them fit into an entry.
const MaxQueues = 65_535

// fileNames are the fields as RocketMQ's files call them, by the names that Validate has.
var fileNames = map[string]string{ //nolint:gochecknoglobals // a table
	"read_queues": "readQueueNums", "write_queues": "writeQueueNums", "filter_type": "topicFilterType", "sys_flag": "topicSysFlag",
	"retry_queues": "retryQueueNums", "retry_max": "retryMaxTimes", "broker_id": "brokerId", "slow_broker_id": "whichBrokerWhenConsumeSlowly",
	"consume_timeout_minutes": "consumeTimeoutMinute", "retry_policy": "groupRetryPolicy", "topic": "name", "group": "name",
}

// ValidateImported checks what an operator may bring under a key in a file. It is what a change may put in, and what a broker writes
// beyond that: topics without queues (static ones), the priority bit, and names of its own making (see importedName).
func ValidateImported(key string, v Value) error {
	err := validateImported(key, v)
	e := errdefs.As(err)
	if e == nil {
		return err
	}
	field := e.Field
	if name := fileNames[field]; name != "" {
		field = name
	}
	e = e.WithMsg("%.200q: %s: %s", key, field, e.Msg).With("entry", key[:min(len(key), 200)]).With("entry_field", field)
	return e.WithRemedy("in the file, %s; or take the entry out of it", e.Remedy)
}

func validateImported(key string, v Value) error {
	switch v := v.(type) {
	case *TopicConfig:
		if err := importedName("topic", key, maxImportedTopic); err != nil {
			return err
		}
		return v.validateFields(0, MaxQueues, 2*PermPriority)
	case *GroupConfig:
		if err := importedName("group", key, MaxGroupName); err != nil {
			return err
		}
		return v.validateFields()
	case *Offsets:
		topic, group, _ := SplitOffsetKey(key)
		if err := importedName("topic", topic, maxImportedTopic); err != nil {
			return err
		}
		if err := importedName("group", group, MaxGroupName); err != nil {
			return err
		}
		if n := len(v.queues); n > 0 && v.queues[n-1].Queue >= MaxQueues {
			return ErrOffset.WithField("queue").WithMsg("queue %d", v.queues[n-1].Queue).WithRemedy("count queues from 0 to %d", MaxQueues-1)
		}
	}
	return nil // a delay level has its key checked
}

// maxImportedTopic is the length of a retry topic of POP: %RETRY%, a group, a separator, a topic.
const maxImportedTopic = len(retryPrefix) + MaxGroupName + 1 + MaxTopicName

// importedName takes what a change may name, and the dots of hosts and clusters that brokers call topics by, and the plus of a retry
// topic of POP.
func importedName(field, name string, limit int) error {
	plain := strings.NewReplacer(".", "-", "+", "-").Replace(name)
	return validateName(field, plain, limit)
}
