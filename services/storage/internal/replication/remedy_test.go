package replication

import (
	"testing"

	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

// TestEveryRefusalHasARemedy: what the log says about a refused connection.
func TestEveryRefusalHasARemedy(t *testing.T) {
	for why := badSilent; why < badWentBack; why++ {
		if link.Remedy(badNames[why]) == "" {
			t.Errorf("%s has no remedy", badNames[why])
		}
	}
}
