package main

import (
	"fmt"
	"os"
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

// terminal: lines can be drawn over.
var terminal = func() bool {
	st, err := os.Stdout.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}()

// redraw draws a line over the last one; away from a terminal only the line that ends in a newline is printed.
func redraw(format string, args ...any) {
	switch {
	case terminal:
		fmt.Printf("\r"+strings.TrimSuffix(format, "\n")+"\x1b[K"+format[len(strings.TrimSuffix(format, "\n")):], args...)
	case strings.HasSuffix(format, "\n"):
		fmt.Printf(format, args...)
	}
}
