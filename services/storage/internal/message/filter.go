package message

import (
	"slices"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// maxFilter bounds a tag expression, bytes.
const maxFilter = 4096

// TagFilter selects messages by tag. The zero value takes all. Values are immutable.
type TagFilter struct {
	tags  []string
	codes []int64 // sorted
}

// ParseTagFilter reads a tag expression: empty or `*` for all, else tags joined by `||`. Spaces around tags do not count.
// The error is an errdefs.Invalid of field tagFilter.
func ParseTagFilter(expr string) (TagFilter, error) {
	var f TagFilter
	if expr == "" || expr == "*" {
		return f, nil
	}
	if len(expr) > maxFilter {
		return f, errdefs.Invalid("tagFilter", "has %d bytes, more than the %d allowed", len(expr), maxFilter)
	}
	for part := range strings.SplitSeq(expr, "||") {
		tag := strings.TrimSpace(part)
		if tag == "" || slices.Contains(f.tags, tag) {
			continue
		}
		f.tags = append(f.tags, tag)
		f.codes = append(f.codes, TagsCode([]byte(tag)))
	}
	if len(f.tags) == 0 {
		return f, errdefs.Invalid("tagFilter", "%q names no tag", expr).WithRemedy("write * for all messages, or tags joined by ||")
	}
	slices.Sort(f.codes)
	return f, nil
}

// All reports whether the filter takes every message.
func (f TagFilter) All() bool { return len(f.tags) == 0 }

// MatchCode reports whether a message with this tags code may match; by equal hashes it may be wrong, so ask Match too.
func (f TagFilter) MatchCode(code int64) bool {
	if f.All() {
		return true
	}
	_, ok := slices.BinarySearch(f.codes, code)
	return ok
}

// Match reports whether a message with these tags passes.
func (f TagFilter) Match(tags []byte) bool {
	if f.All() {
		return true
	}
	for _, t := range f.tags {
		if t == string(tags) {
			return true
		}
	}
	return false
}
