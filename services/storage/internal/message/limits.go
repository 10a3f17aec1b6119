package message

import (
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	// DefaultMaxBody is RocketMQ's maxMessageSize, bytes.
	DefaultMaxBody = 4 << 20
	// MaxProperties is the most that a record can hold, bytes, its `__CRC32#` property included.
	MaxProperties = 32767
)

// Limits is what a put must keep to. The zero value has RocketMQ's defaults.
type Limits struct {
	MaxBody int  // bytes; 0: DefaultMaxBody
	NoCRC   bool // records carry no `__CRC32#`: its 20 bytes may be used
}

// Validate says whether d may be encoded. The error is an errdefs.Invalid that names the field.
func (l Limits) Validate(d *Draft) error {
	if err := CheckTopic(d.Topic); err != nil {
		return err
	}
	maxBody := l.MaxBody
	if maxBody == 0 {
		maxBody = DefaultMaxBody
	}
	switch {
	case d.QueueID < 0:
		return errdefs.Invalid("queueId", "is %d, must not be negative", d.QueueID)
	case len(d.Body) == 0:
		return errdefs.Invalid("body", "is empty")
	case len(d.Body) > maxBody:
		return errdefs.Invalid("body", "has %d bytes, more than the %d allowed", len(d.Body), maxBody).
			WithRemedy("split or compress it, or raise maxMessageSize")
	case d.BornTimestamp < 0:
		return errdefs.Invalid("bornTimestamp", "is %d, must not be negative", d.BornTimestamp)
	case d.ReconsumeTimes < 0:
		return errdefs.Invalid("reconsumeTimes", "is %d, must not be negative", d.ReconsumeTimes)
	case d.PreparedTransactionOffset < 0:
		return errdefs.Invalid("preparedTransactionOffset", "is %d, must not be negative", d.PreparedTransactionOffset)
	}
	return l.checkProperties(d.Properties)
}

// checkProperties judges encoded properties: their size with everything that Append adds, and each pair.
func (l Limits) checkProperties(props []byte) error {
	props = trimCRC(props)
	if size := propertiesSize(props, !l.NoCRC); size > MaxProperties {
		return errdefs.Invalid("properties", "take %d bytes encoded, more than the %d that a record holds", size, MaxProperties)
	}
	for at := 0; at < len(props); {
		name, value, rest := nextProperty(props[at:])
		if name == nil {
			return errdefs.Invalid("properties", "pair at byte %d lacks a name, a value or the byte 01 between them", at)
		}
		if err := checkText(value); err != nil {
			return err.WithField("properties[" + string(name) + "]")
		}
		at = len(props) - len(rest)
	}
	return nil
}

// CheckProperty says whether a pair can be encoded: neither part empty (readers drop such pairs) nor with the bytes 01
// and 02 in it, and the name not that of the record's own checksum.
func CheckProperty(name, value string) error {
	switch {
	case name == "":
		return errdefs.Invalid("properties", "a name is empty")
	case strings.ContainsAny(name, "\x01\x02"):
		return errdefs.Invalid("properties", "name %q contains byte 01 or 02, which separate properties", name)
	case name == PropertyCRC32:
		return errdefs.Invalid("properties["+name+"]", "is the record's own checksum and cannot be set")
	case value == "":
		return errdefs.Invalid("properties["+name+"]", "value is empty").WithRemedy("leave the property out")
	}
	if err := checkText(value); err != nil {
		return err.WithField("properties[" + name + "]")
	}
	return nil
}

func checkText[T string | []byte](value T) *errdefs.Error {
	for i := range len(value) {
		if c := value[i]; c == nameSeparator || c == pairSeparator {
			return errdefs.Invalid("properties", "value contains byte %02x at %d, which separates properties", c, i)
		}
	}
	return nil
}

// CheckTopic says whether messages may be put to the topic: 1 to 127 characters of [a-zA-Z0-9_%|-], 255 where it is a
// retry topic. The error is an errdefs.Invalid of field topic.
func CheckTopic(topic string) error {
	limit := MaxTopic
	if strings.HasPrefix(topic, TopicRetryPrefix) {
		limit = MaxRetryTopic
	}
	switch {
	case topic == "":
		return errdefs.Invalid("topic", "is empty")
	case topic == "." || topic == "..":
		return errdefs.Invalid("topic", "%q is no name", topic)
	case len(topic) > limit:
		return errdefs.Invalid("topic", "has %d characters, more than the %d allowed", len(topic), limit)
	}
	for i := range len(topic) {
		if !topicChar[topic[i]] {
			return errdefs.Invalid("topic", "character %q at %d is not allowed", topic[i:i+1], i).
				WithRemedy("use letters, digits and the characters _ %% | -")
		}
	}
	return nil
}

// topicChar says which bytes a topic may have.
var topicChar = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-%|") {
		t[c] = true
	}
	return t
}()
