package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// lines as mqadmin 4.9.7 prints them.
const (
	statsText = `#Topic #Group #Broker Name #QID #Broker Offset #Consumer Offset #Diff #LastTime
Plain  orderly   broker-a  3  40  2   38  2026-11-29 20:46:40
Made   made-group  broker-a  2  40  22  18  2026-11-29 20:46:46

Diff Total: 56`
	progressText = `#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #LastTime
Made  broker-a  0  40  0   40  N/A
Made  broker-a  2  40  22  18  2026-11-29 20:46:46

Consume TPS: 0.00
Diff Total: 58`
	topicText = `#Broker Name #QID #Min Offset #Max Offset #Last Updated
broker-a  0  0  40  2026-11-29 20:46:46,137
broker-a  1  0  40  2026-11-29 20:46:46,138
broker-a  2  0  40  2026-11-29 20:46:46,138
broker-a  3  0  40  2026-11-29 20:46:46,138

Topic Put TPS: 0.0`
	statusText = `runtime                         : [ 0 days, 0 hours, 0 minutes, 25 seconds ]
scheduleMessageOffset_10        : 4,4
scheduleMessageOffset_9         : 5,7`
)

func TestMqadminLines(t *testing.T) {
	p := &started{had: &answers{
		queues: map[queueOf]int64{{"orderly", "Plain", 3}: 2, {madeGroup, madeTopic, 2}: 22, {madeGroup, madeTopic, 0}: 0},
		delays: map[int32]int64{9: 5, 10: 4},
	}}
	for name, c := range map[string]struct {
		check         func([]string) error
		text, old, to string
	}{
		"brokerConsumeStats": {p.stats, statsText, " 22 ", " 21 "},
		"consumerProgress":   {p.progress, progressText, " 22 ", " 23 "},
		"topicStatus":        {p.filled, topicText, "3  0  40", "3  0  39"},
		"brokerStatus":       {p.delayed, statusText, "5,7", "7,7"},
	} {
		if err := c.check(strings.Split(c.text, "\n")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.check(strings.Split(strings.Replace(c.text, c.old, c.to, 1), "\n")); err == nil {
			t.Errorf("%s with %q for %q: no difference is seen", name, c.to, c.old)
		}
		if c.check(nil) == nil {
			t.Errorf("%s that prints nothing: no difference is seen", name)
		}
	}
}

func TestTablesAsJavaHasThem(t *testing.T) {
	table := func(text string) tables {
		config := map[string]any{}
		if err := json.Unmarshal([]byte(text), &config); err != nil {
			t.Fatal(err)
		}
		return tables{"topics.json": {"T": config}}
	}
	for _, c := range []struct {
		version, tandem, java string
		same                  bool
	}{
		{"5.3.3", `{"perm":6,"unheardOf":1}`, `{"perm":6,"attributes":{}}`, true},
		{"5.3.3", `{"perm":6,"attributes":{"a":"b"}}`, `{"perm":6,"attributes":{}}`, false},
		{"4.9.7", `{"perm":6,"attributes":{"a":"b"}}`, `{"perm":6}`, true},
		{"4.9.7", `{"perm":6}`, `{"perm":4}`, false},
	} {
		if d := differsForJava(c.version, table(c.tandem), table(c.java)); (d == "") != c.same {
			t.Errorf("%s: %s and %s: %q", c.version, c.tandem, c.java, d)
		}
	}
}
