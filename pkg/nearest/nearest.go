package nearest

import "strings"

// To returns the candidate that a wrong word most likely means, "" when none is near. The last part of dotted words
// counts by itself too: listenPort is near ha.listenPort.
func To(word string, candidates []string) string {
	best, bestScore := "", 1<<30
	for _, c := range candidates {
		score := distance(word, c)
		if tail := distance(lastPart(word), lastPart(c)) + 1; tail < score {
			score = tail
		}
		if score < bestScore {
			best, bestScore = c, score
		}
	}
	allowed := len(lastPart(word)) / 3 // a short word is near to everything
	if len(word) > 3 {
		allowed = max(allowed, 2)
	}
	if bestScore > allowed {
		return ""
	}
	return best
}

func lastPart(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }

// distance is the number of insertions, deletions, replacements and swaps of neighbours between a and b, whatever their case.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
