package identity

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

const (
	maxName   = 255 // bytes; a host name, which RocketMQ takes where none is set, fits
	nameMarks = "-_.%|"
)

// CheckName checks the name of a broker or a cluster: it stands in lists, commands and the origin of messages that were put
// again, where blanks and slashes part one thing from the next.
func CheckName(key, name string) error {
	switch {
	case name == "":
		return errdefs.Invalid(key, "is empty")
	case len(name) > maxName:
		return errdefs.Invalid(key, "has %d bytes, more than %d", len(name), maxName)
	case !utf8.ValidString(name):
		return errdefs.Invalid(key, "%q is not UTF-8", name)
	}
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(nameMarks, r) {
			return errdefs.Invalid(key, "%q has a %q: a name has letters, digits and %s only", name, r, nameMarks)
		}
	}
	return nil
}
