package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// spread is the median of the rounds, the least and the greatest.
type spread struct{ median, least, most float64 }

func spreadOf(rounds []round, f func(round) float64) spread {
	all := make([]float64, 0, len(rounds))
	for _, r := range rounds {
		all = append(all, f(r))
	}
	slices.Sort(all)
	n := len(all)
	return spread{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}
}

func (s spread) String() string {
	return fmt.Sprintf("%s (%s..%s)", short(s.median), short(s.least), short(s.most))
}

// short prints three figures, whole numbers from 100 on.
func short(v float64) string {
	switch {
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	case v >= 0.01 || v == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}

// table returns the lines of the rows. missing has the reason why a probe could not be measured.
func table(chosen []row, rounds []round, missing map[string]string) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| row | what | ratio (min..max) | goal | met |")
	fmt.Fprintln(&b, "|---|---|---|---|---|")
	for _, r := range chosen {
		if why := r.value.lacks(missing); why != "" {
			fmt.Fprintf(&b, "| %s | %s | not measured: %s | %s | - |\n", r.id, r.what, why, cmp.Or(r.goal.text, "-"))
			continue
		}
		s := spreadOf(rounds, r.value.of)
		met := "-"
		if r.goal.met != nil {
			met = "no"
			if r.goal.met(s.median) {
				met = "yes"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.id, r.what, s, cmp.Or(r.goal.text, "-"), met)
	}
	return b.String()
}

// lacks returns why the formula cannot be computed, or "".
func (f formula) lacks(missing map[string]string) string {
	for _, name := range f.needs {
		if why := missing[name]; why != "" {
			return why
		}
	}
	return ""
}

// measured returns the table of what the probes found.
func measured(needed []probe, rounds []round) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| measured | median (min..max) |")
	fmt.Fprintln(&b, "|---|---|")
	for _, p := range needed {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(rounds[0][p.name])) {
			s := spreadOf(rounds, figure{p.name, name}.in)
			parts = append(parts, fmt.Sprintf("%s: %s", name, s))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", p.name, strings.Join(parts, "; "))
	}
	return b.String()
}

// machine says what the numbers depend on.
func machine(s settings) string {
	congestion := s.congestion
	if congestion == "" {
		b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
		congestion = strings.TrimSpace(string(b))
		if err != nil {
			congestion = "unknown"
		}
	}
	return fmt.Sprintf("%d CPUs, %s, congestion control %s, streams to %s, puts to %s",
		runtime.NumCPU(), runtime.Version(), congestion, s.disk, s.mem)
}
