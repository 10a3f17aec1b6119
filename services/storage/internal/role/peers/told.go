package peers

import "time"

// tellAgain is how often a text that stays the same is told.
const tellAgain = time.Minute

// Told remembers what was told last: a try that is repeated fills no log with one text.
type Told struct {
	text string
	at   time.Time
}

// News reports whether text is worth telling at now, and takes it as told then.
func (t *Told) News(text string, now time.Time) bool {
	if text == t.text && now.Sub(t.at) < tellAgain {
		return false
	}
	t.text, t.at = text, now
	return true
}
