package entry

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors of values; Field names the field at fault.
var (
	ErrName   = errdefs.New(errdefs.InvalidArgument, "INVALID_NAME", "not a legal name")
	ErrField  = errdefs.New(errdefs.InvalidArgument, "INVALID_CONFIG", "not a legal value")
	ErrOffset = errdefs.New(errdefs.InvalidArgument, "INVALID_OFFSET", "not a legal offset")
)

// Limits of RocketMQ.
const (
	MaxTopicName  = 127
	MaxGroupName  = 255
	MaxDelayLevel = 1<<16 - 1
	// MaxKey bounds what is read as a key of any table.
	MaxKey = 32 << 10

	retryPrefix = "%RETRY%"
	dlqPrefix   = "%DLQ%"
)

// ValidateTopicName holds name against TopicValidator's rules. The topics of a group's retries and dead letters may be
// as long as the group's name makes them.
func ValidateTopicName(name string) error {
	for _, prefix := range []string{retryPrefix, dlqPrefix} {
		if group, ok := strings.CutPrefix(name, prefix); ok {
			return validateName("topic", group, MaxGroupName)
		}
	}
	return validateName("topic", name, MaxTopicName)
}

// ValidateGroupName holds name against RocketMQ's rules for consumer groups.
func ValidateGroupName(name string) error { return validateName("group", name, MaxGroupName) }

func validateName(field, name string, limit int) error {
	if name == "" {
		return ErrName.WithField(field).WithMsg("the name is empty").WithRemedy("give it 1 to %d characters", limit)
	}
	if len(name) > limit {
		return ErrName.WithField(field).WithMsg("the name has %d characters", len(name)).WithRemedy("use at most %d", limit)
	}
	for i := range len(name) {
		if !legal(name[i]) {
			return ErrName.WithField(field).WithMsg("character %q at position %d of the name", name[i], i).
				WithRemedy("use letters, digits, %%, |, - and _")
		}
	}
	return nil
}

func legal(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '%' || c == '|' || c == '-' || c == '_'
}

// OffsetKey is the key of a group's offsets in a topic.
func OffsetKey(topic, group string) string { return topic + "@" + group }

// SplitOffsetKey parts a key at its first @.
func SplitOffsetKey(key string) (topic, group string, ok bool) {
	topic, group, ok = strings.Cut(key, "@")
	return topic, group, ok && topic != "" && group != ""
}

// DelayKey is the key of a delay level.
func DelayKey(level int32) string { return strconv.Itoa(int(level)) }

// ParseDelayKey is the way back; false for a key that DelayKey does not make of a level from 1 to MaxDelayLevel.
func ParseDelayKey(key string) (int32, bool) {
	n, err := strconv.ParseInt(key, 10, 32)
	return int32(n), err == nil && n >= 1 && n <= MaxDelayLevel && DelayKey(int32(n)) == key
}

// ValidateKey checks what a table of the kind may have as a key, which is more than a change may name: what a broker wrote
// is kept.
func ValidateKey(kind Kind, key string) error {
	switch ok := key != "" && len(key) <= MaxKey && utf8.ValidString(key); {
	case !ok:
		return ErrName.WithField("key").WithMsg("a key of %d bytes in %s: %.80q", len(key), kind, key).
			WithRemedy("a key is UTF-8 and has 1 to %d bytes", MaxKey)
	case kind == ConsumerOffsets:
		if _, _, ok := SplitOffsetKey(key); !ok {
			return ErrName.WithField("key").WithMsg("%.80q is not topic@group", key)
		}
	case kind == DelayOffsets:
		if _, ok := ParseDelayKey(key); !ok {
			return ErrName.WithField("key").WithMsg("%.80q is not a delay level", key)
		}
	}
	return nil
}
