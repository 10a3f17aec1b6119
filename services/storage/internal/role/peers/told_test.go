package peers

import (
	"testing"
	"time"
)

func TestToldOnceUntilItChangesOrAMinuteHasPassed(t *testing.T) {
	var told Told
	began := time.Unix(1_700_000_000, 0)
	for i, c := range []struct {
		text  string
		after time.Duration
		want  bool
	}{
		{"disk full", 0, true},
		{"disk full", time.Second, false},
		{"disk full", tellAgain - 1, false},
		{"disk full", tellAgain, true},
		{"disk full", tellAgain + time.Second, false},
		{"no answer", tellAgain + time.Second, true},
		{"disk full", tellAgain + time.Second, true},
	} {
		if got := told.News(c.text, began.Add(c.after)); got != c.want {
			t.Errorf("line %d, %q after %v: %v", i, c.text, c.after, got)
		}
	}
}
