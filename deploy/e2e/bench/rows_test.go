package main

import (
	"slices"
	"strings"
	"testing"
)

func TestRowsUseProbesThatExist(t *testing.T) {
	for _, r := range rows() {
		for _, name := range r.value.needs {
			if !slices.ContainsFunc(probes(), func(p probe) bool { return p.name == name }) {
				t.Errorf("row %s, %s: there is no probe %q", r.id, r.what, name)
			}
		}
	}
	for _, p := range probes() {
		if !slices.ContainsFunc(rows(), func(r row) bool { return slices.Contains(r.value.needs, p.name) }) {
			t.Errorf("no row needs probe %q", p.name)
		}
	}
}

// TestRowsStayInTheirPart: what was not measured in the same round is not compared.
func TestRowsStayInTheirPart(t *testing.T) {
	for _, r := range rows() {
		var in []int
		for n, part := range parts(probesOf([]row{r})) {
			if len(part) > 0 {
				in = append(in, n)
			}
		}
		if len(in) != 1 {
			t.Errorf("row %s, %s: its probes are in the parts %v", r.id, r.what, in)
		}
	}
}

func TestChoose(t *testing.T) {
	got, err := choose(rows(), "19, 3")
	if err != nil || len(got) != 4 || got[0].id != "19" || got[3].id != "3" {
		t.Errorf("%v, %v", got, err)
	}
	if names := probesOf(got); len(names) != 3 || names[0].name != "ping-pong" {
		t.Errorf("probes of 19 and 3: %v", names)
	}
	if _, err := choose(rows(), "3,99"); err == nil || !strings.Contains(err.Error(), "1, 2, 3") {
		t.Errorf("a row that is not there: %v", err)
	}
}

func TestTable(t *testing.T) {
	number := func(r round) float64 { return r["p"]["n"] }
	rounds := []round{{"p": {"n": 3}}, {"p": {"n": 1}}, {"p": {"n": 20}}, {"p": {"n": 4}}}
	got := table([]row{
		{"1", "odd", formula{nil, number}, atLeast(3.5)},
		{"2", "more", formula{nil, number}, atMost(3)},
		{"3", "free", formula{nil, number}, goal{}},
		{"4", "beside", formula{[]string{"p", "q"}, number}, atLeast(2)},
	}, rounds, map[string]string{"q": "it is not installed"}) + measured([]probe{{name: "p"}}, rounds)
	want := "| row | what | ratio (min..max) | goal | met |\n|---|---|---|---|---|\n" +
		"| 1 | odd | 3.50 (1.00..20.0) | >= 3.5 | yes |\n" +
		"| 2 | more | 3.50 (1.00..20.0) | <= 3 | no |\n" +
		"| 3 | free | 3.50 (1.00..20.0) | - | - |\n" +
		"| 4 | beside | not measured: it is not installed | >= 2 | - |\n" +
		"| measured | median (min..max) |\n|---|---|\n| p | n: 3.50 (1.00..20.0) |\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestLeastStep(t *testing.T) {
	r := round{"a": {"per second": 100}, "b": {"per second": 80}, "c": {"per second": 30}}
	if got := leastStep("a", "b", "c").of(r); got != 0.75 {
		t.Errorf("%v", got)
	}
}
