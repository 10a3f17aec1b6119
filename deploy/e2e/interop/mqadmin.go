package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// question is a command of mqadmin's and what its answer must be.
type question struct {
	args  []string
	check func(lines []string) error
	*process
	out bytes.Buffer
}

// begin starts RocketMQ's own mqadmin.
func (p *started) begin(q *question) (err error) {
	cmd := p.q.Admin(p.dir, small, append(q.args, "-n", p.nameServer)...)
	cmd.Stdout = &q.out
	q.process, err = p.start("mqadmin "+strings.Join(q.args[:min(2, len(q.args))], " "), cmd)
	return err
}

// answer waits until it has ended and checks what it printed. It must end with 0 and tell of no exception.
func (q *question) answer(ctx context.Context) error {
	select {
	case <-q.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	log, err := os.ReadFile(q.log)
	if err != nil {
		return err
	}
	all := q.out.String() + string(log[q.from:])
	if code := q.cmd.ProcessState.ExitCode(); code != 0 || strings.Contains(all, "Exception") {
		return fmt.Errorf("%s ends with %d: %s", q.name, code, all)
	}
	var lines []string
	for line := range strings.Lines(q.out.String()) {
		if !strings.Contains(line, "|-") { // how 5.x sets up its logging
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if err := q.check(lines); err != nil {
		return fmt.Errorf("%s: %w; it printed:\n%s", q.name, err, strings.Join(lines, "\n"))
	}
	return nil
}

// askAll asks mqadmin for topics, groups and offsets in each way that it has, and compares all with what Tandem had.
func (p *started) askAll(ctx context.Context, addr string) error {
	questions := []*question{
		{args: []string{"exportMetadata", "-t", "-s", "-b", addr, "-f", p.dir}, check: func([]string) error {
			return p.exported("topic.json", "topics.json", madeTopic, "Made-One", "Made-ReadOnly", "Made_WriteOnly", "Made-Many", importedTopic, "Plain")
		}},
		{args: []string{"exportMetadata", "-g", "-b", addr, "-f", p.dir}, check: func([]string) error {
			return p.exported("subscriptionGroup.json", "subscriptionGroup.json", madeGroup, orderlyGroup, importedGroup, adoptedGroup)
		}},
		{args: []string{"topicList"}, check: p.listed},
		{args: []string{"topicRoute", "-t", "Made_WriteOnly"}, check: p.routed},
		{args: []string{"topicStatus", "-t", madeTopic}, check: p.filled},
		{args: []string{"getConsumerConfig", "-g", orderlyGroup}, check: p.configured},
		{args: []string{"brokerConsumeStats", "-b", addr}, check: p.stats},
		{args: []string{"consumerProgress", "-g", madeGroup}, check: p.progress},
		{args: []string{"brokerStatus", "-b", addr}, check: p.delayed},
	}
	for some := range slices.Chunk(questions, 3) { // JVMs at a time
		for _, q := range some {
			if err := p.begin(q); err != nil {
				return err
			}
		}
		for _, q := range some {
			if err := q.answer(ctx); err != nil {
				return err
			}
		}
	}
	say("mqadmin shows Tandem's topics, groups and offsets: exportMetadata, topicList, topicRoute, topicStatus, getConsumerConfig, " +
		"brokerConsumeStats, consumerProgress, brokerStatus")
	return nil
}

// exported compares a file of exportMetadata with Tandem's of the same; it has no entries of RocketMQ's own, but must have some.
func (p *started) exported(name, file string, due ...string) error {
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var whole map[string]json.RawMessage
	if err := dec.Decode(&whole); err != nil {
		return err
	}
	table := map[string]any{}
	dec = json.NewDecoder(bytes.NewReader(whole[tableFields[file]]))
	dec.UseNumber()
	if err := dec.Decode(&table); err != nil {
		return err
	}
	for _, key := range due {
		if _, ok := table[key]; !ok {
			return fmt.Errorf("it has not %s", key)
		}
	}
	shown := tables{file: table}
	has := tables{file: map[string]any{}}
	for key := range table {
		if entry, ok := p.wrote[file][key]; ok {
			has[file][key] = entry
		}
	}
	if d := differsForJava(p.q.Version, has, shown); d != "" {
		return fmt.Errorf("it differs from Tandem's file: %s", d)
	}
	return nil
}

// listed wants each topic of Tandem's and not the one that was deleted.
func (p *started) listed(lines []string) error {
	list := map[string]bool{}
	for _, line := range lines {
		list[line] = true
	}
	for topic := range p.had.topics {
		if !list[topic] {
			return fmt.Errorf("it has not %s", topic)
		}
	}
	if list[droppedTopic] {
		return fmt.Errorf("it has %s, which was deleted", droppedTopic)
	}
	return nil
}

// routed wants the queues and the permission of a topic.
func (p *started) routed(lines []string) error {
	return wants(lines, `"perm":2,`, `"readQueueNums":2,`, `"topicSysFlag":1,`, `"writeQueueNums":6`)
}

// filled wants each queue of a topic with what Tandem's client put there.
func (p *started) filled(lines []string) error {
	want, got := map[queueOf]int64{}, map[queueOf]int64{}
	for queue := range int32(startedQueues) {
		want[queueOf{queue: queue}] = startedPuts
	}
	for _, f := range rows(lines, 4, 1) {
		got[queueOf{queue: int32(number(f[1]))}] = number(f[3]) - number(f[2])
	}
	return sameOffsets(want, got)
}

// configured wants what was set of a group.
func (p *started) configured(lines []string) error {
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return wants(lines, "groupName = orderly", "consumeEnable = true", "consumeFromMinEnable = false", "consumeBroadcastEnable = false",
		"retryQueueNums = 2", "retryMaxTimes = 16", "whichBrokerWhenConsumeSlowly = 3", "notifyConsumerIdsChangedEnable = false")
}

// wants wants each of these lines.
func wants(lines []string, due ...string) error {
	have := map[string]bool{}
	for _, line := range lines {
		have[line] = true
	}
	for _, line := range due {
		if !have[line] {
			return fmt.Errorf("it has no line %q", line)
		}
	}
	return nil
}

// stats wants the offset of each queue of each group; it does not show those at 0.
func (p *started) stats(lines []string) error {
	want, got := map[queueOf]int64{}, map[queueOf]int64{}
	for at, offset := range p.had.queues {
		if offset > 0 {
			want[at] = offset
		}
	}
	for _, f := range rows(lines, 7, 3) {
		if offset := number(f[5]); offset > 0 {
			got[queueOf{f[1], f[0], int32(number(f[3]))}] = offset
		}
	}
	return sameOffsets(want, got)
}

// progress wants the offset of each queue of a group.
func (p *started) progress(lines []string) error {
	want, got := map[queueOf]int64{}, map[queueOf]int64{}
	for at, offset := range p.had.queues {
		if at.group == madeGroup {
			want[at] = offset
		}
	}
	for _, f := range rows(lines, 6, 2) {
		if f[0] == madeTopic { // it shows the retry topic too
			got[queueOf{madeGroup, f[0], int32(number(f[2]))}] = number(f[4])
		}
	}
	return sameOffsets(want, got)
}

// delayed wants the offset of each delay level.
func (p *started) delayed(lines []string) error {
	got := map[int32]int64{}
	for _, line := range lines {
		if level, ok := strings.CutPrefix(line, "scheduleMessageOffset_"); ok {
			level, at, _ := strings.Cut(level, ":")
			at, _, _ = strings.Cut(at, ",")
			got[int32(number(level))] = number(at)
		}
	}
	if !maps.Equal(p.had.delays, got) {
		return fmt.Errorf("its delay offsets are %v, due are %v", got, p.had.delays)
	}
	return nil
}

// rows are the words of the lines of a table: those that have so many at least, and a queue's number in their column for it.
func rows(lines []string, words, queue int) (out [][]string) {
	for _, line := range lines {
		if f := strings.Fields(line); len(f) >= words && number(f[queue]) >= 0 {
			out = append(out, f)
		}
	}
	return out
}

// number is -1 where there is none.
func number(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func sameOffsets(want, got map[queueOf]int64) error {
	if len(want) == 0 || !maps.Equal(want, got) {
		return fmt.Errorf("it shows %v, due are %v", got, want)
	}
	return nil
}

// newDefaults are what RocketMQ 5 makes of fields that a config does not have.
var newDefaults = map[string]map[string]any{
	"topics.json": {"attributes": map[string]any{}},
	"subscriptionGroup.json": {
		"attributes": map[string]any{}, "consumeMessageOrderly": false, "consumeTimeoutMinute": json.Number("15"), "groupSysFlag": json.Number("0"),
		"groupRetryPolicy": map[string]any{"type": "CUSTOMIZED"},
	},
}

// differsForJava says where a broker of a version has other tables than Tandem, or "".
func differsForJava(version string, tandem, java tables) string {
	return asJava(version, tandem).differs(asJava(version, java))
}

// asJava is a copy of tables as the broker should have them: without what it does not know, and with its defaults.
func asJava(version string, t tables) tables {
	out := tables{}
	for file, table := range t {
		out[file] = maps.Clone(table)
		for key, config := range table {
			if config, ok := config.(map[string]any); ok && newDefaults[file] != nil {
				full := maps.Clone(newDefaults[file])
				maps.Copy(full, config)
				out[file][key] = full
			}
		}
	}
	out.without([]string{"unheardOf"})
	if strings.HasPrefix(version, "4.") {
		out.without(newFields)
	}
	return out
}
