package faults

import (
	"net"
	"testing"
)

// TestPorts: rows do not overlap, begin again at the end of the range, and leave out what somebody else has.
func TestPorts(t *testing.T) {
	p := &Ports{next: highPort - 2}
	first, err := p.Take(3)
	if err != nil || first < lowPort || first+3 > highPort {
		t.Fatal(first, err)
	}
	taken := p.next
	if taken != first+3 {
		t.Errorf("%d follows the row from %d", taken, first)
	}
	if ln, err := net.Listen("tcp", Loopback(taken)); err == nil { // else somebody else has it, which is as good
		defer ln.Close()
	}
	if first, err = p.Take(2); err != nil || first <= taken {
		t.Error(first, err)
	}
}
