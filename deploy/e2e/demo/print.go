package main

import (
	"fmt"
	"strings"
)

func step(title string) { fmt.Printf("\n%s\n", title) }

func say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

// size prints bytes as a person reads them.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// bar draws done of total in 24 characters.
func bar(done, total int64) string {
	const width = 24
	k := width
	if total > 0 {
		k = int(min(done, total) * width / total)
	}
	return "[" + strings.Repeat("#", k) + strings.Repeat(".", width-k) + "]"
}
