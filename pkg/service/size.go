package service

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as 512, 32KiB, 4MiB, 1GiB or 2TiB.
type Size int64

var sizeUnits = []struct { // largest first, B last as every unit ends in it
	name  string
	shift uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}, {"B", 0}}

// String returns the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && u.shift > 0 && s%(1<<u.shift) == 0 {
			return strconv.FormatInt(int64(s>>u.shift), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText implements encoding.TextMarshaler.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	digits, shift := strings.TrimSpace(string(text)), uint(0)
	for _, u := range sizeUnits {
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
	*s = Size(n << shift)
	return nil
}
