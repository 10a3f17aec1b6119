package message

import (
	"math"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// DefaultDelayLevels is RocketMQ's messageDelayLevel.
const DefaultDelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

// unknownLevelDelay is RocketMQ's answer to a level that its table lacks, ms.
const unknownLevelDelay = 1000

// DelayLevels is the table of delay levels, numbered from 1. The zero value has none. Values are immutable.
type DelayLevels struct{ ms []int64 }

// ParseDelayLevels reads a table: numbers with unit s, m, h or d, separated by spaces. The error is an errdefs.Invalid of
// field messageDelayLevel.
func ParseDelayLevels(s string) (DelayLevels, error) {
	var d DelayLevels
	for i, f := range strings.Fields(s) {
		unit := int64(0)
		switch f[len(f)-1] {
		case 's':
			unit = 1000
		case 'm':
			unit = 60 * 1000
		case 'h':
			unit = 3600 * 1000
		case 'd':
			unit = 24 * 3600 * 1000
		}
		n, err := strconv.ParseInt(f[:len(f)-1], 10, 64)
		if unit == 0 || err != nil || n < 0 || n > math.MaxInt64/4/max(unit, 1) {
			return DelayLevels{}, errdefs.Invalid("messageDelayLevel", "level %d is %q", i+1, f).
				WithRemedy("write a number and one of s, m, h, d, such as 30s")
		}
		d.ms = append(d.ms, n*unit)
	}
	if len(d.ms) == 0 {
		return DelayLevels{}, errdefs.Invalid("messageDelayLevel", "has no levels")
	}
	return d, nil
}

// Max returns the highest level; 0 when there is no table.
func (d DelayLevels) Max() int { return len(d.ms) }

// DeliverTime returns when a message of that level, stored at storeTimestamp, is due; both in ms since 1970. A level
// that the table lacks is due after a second, as in RocketMQ.
func (d DelayLevels) DeliverTime(level int, storeTimestamp int64) int64 {
	if level < 1 || level > len(d.ms) {
		return storeTimestamp + unknownLevelDelay
	}
	return storeTimestamp + d.ms[level-1]
}

// TagsCode returns what the queue unit of v has as its tags code: the hash of its tags, or, for a delayed message put
// aside in the schedule topic, the time when it is due (RocketMQ: CommitLog#checkMessageAndReturnSize). Without a table
// it is the hash always. It allocates nothing.
func (v *View) TagsCode(levels DelayLevels) int64 {
	if string(v.Topic) == TopicSchedule {
		if level, ok := v.delayLevel(); ok {
			if level = min(level, levels.Max()); level > 0 {
				return levels.DeliverTime(level, v.StoreTimestamp)
			}
		}
	}
	tags, _ := v.Property(PropertyTags)
	return TagsCode(tags)
}

// delayLevel reads the DELAY property as Java's Integer.parseInt does.
func (v *View) delayLevel() (int, bool) {
	text, ok := v.Property(PropertyDelay)
	if !ok {
		return 0, false
	}
	negative := text[0] == '-'
	if negative || text[0] == '+' {
		text = text[1:]
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > math.MaxInt32 {
			return 0, false
		}
	}
	if negative {
		n = -n
	}
	return n, len(text) > 0
}
