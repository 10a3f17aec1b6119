package main

import (
	"reflect"
	"testing"
)

func TestPlanIsReplayable(t *testing.T) {
	kinds := map[kind]int{}
	for window := range 200 {
		p := newPlan(7, window)
		if !reflect.DeepEqual(p, newPlan(7, window)) {
			t.Fatalf("window %d has two plans", window)
		}
		for _, f := range p.faults {
			kinds[f.kind]++
			if f.at < 0 || f.at >= p.lasts || f.lasts <= 0 || f.role < 0 || f.role >= copies {
				t.Errorf("window %d: %v", window, f)
			}
		}
	}
	if reflect.DeepEqual(newPlan(7, 1), newPlan(8, 1)) {
		t.Error("another seed makes the same plan")
	}
	if len(kinds) != 12 {
		t.Errorf("of 12 kinds of faults these came: %v", kinds)
	}
}
