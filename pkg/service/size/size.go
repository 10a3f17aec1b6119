package size

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a number of bytes, written as 512, 32KiB, 4MiB, 1GiB or 2TiB.
type Bytes int64

var units = []struct { // largest first, B last as every unit ends in it
	name  string
	shift uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// String returns the size in the largest unit that divides it.
func (s Bytes) String() string {
	for _, u := range units {
		if s != 0 && u.shift > 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s>>u.shift), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements encoding.TextMarshaler.
func (s Bytes) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Bytes) UnmarshalText(text []byte) error {
	digits, shift := strings.TrimSpace(string(text)), uint(0)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(digits, u.name); ok {
			digits, shift = strings.TrimSpace(rest), u.shift
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no size: write bytes or a unit, such as 512, 32KiB, 4MiB, 1GiB", text)
	}
	if n > math.MaxInt64>>shift || n < math.MinInt64>>shift {
		return fmt.Errorf("%q is too large", text)
	}
	*s = Bytes(n << shift)
	return nil
}
