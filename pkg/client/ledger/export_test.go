package ledger

import "time"

// Age lets a sender believe that it has heard nothing for long.
func Age(s *Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Time{}
}
