package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	configsyncv1 "github.com/tandemlog/tandem/gen/tandem/configsync/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
)

// Values that no broker means: an import does not take them, a node that finds them does.
var oddities = []struct {
	kind               configsyncv1.Kind
	file, entry, field string
	value              string // of the entry
}{
	{configsyncv1.Kind_KIND_TOPICS, "topics.json", "TopicZ", "readQueueNums", `{"topicName":"TopicZ","readQueueNums":-5}`},
	{configsyncv1.Kind_KIND_TOPICS, "topics.json", "TopicZ", "writeQueueNums", `{"topicName":"TopicZ","writeQueueNums":2000000000}`},
	{configsyncv1.Kind_KIND_TOPICS, "topics.json", "TopicZ", "perm", `{"topicName":"TopicZ","perm":-1}`},
	{configsyncv1.Kind_KIND_TOPICS, "topics.json", "Topic Z", "name", `{"topicName":"Topic Z"}`},
	{configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS, "subscriptionGroup.json", "Group Z", "name", `{"groupName":"Group Z"}`},
	{configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS, "subscriptionGroup.json", "GroupZ", "retryQueueNums", `{"groupName":"GroupZ","retryQueueNums":-5}`},
	{configsyncv1.Kind_KIND_CONSUMER_OFFSETS, "consumerOffset.json", "TopicZ@Group Z", "name", `{0:1}`},
	{configsyncv1.Kind_KIND_CONSUMER_OFFSETS, "consumerOffset.json", "TopicZ@GroupZ", "queue", `{0:1,65535:7}`},
}

func oneEntry(k configsyncv1.Kind, entry, value string) string {
	field := map[configsyncv1.Kind]string{
		configsyncv1.Kind_KIND_TOPICS: "topicConfigTable", configsyncv1.Kind_KIND_SUBSCRIPTION_GROUPS: "subscriptionGroupTable", configsyncv1.Kind_KIND_CONSUMER_OFFSETS: "offsetTable",
	}[k]
	return fmt.Sprintf(`{"%s":{%q:%s}}`, field, entry, value)
}

// TestImportsAreHeldAgainstTheRules: the error says where, and nothing is imported.
func TestImportsAreHeldAgainstTheRules(t *testing.T) {
	t.Parallel()
	m, _ := led(t)
	before := fmt.Sprint(m.export())
	for _, c := range oddities {
		for _, mode := range []configsyncv1.ImportMode{merge, configsyncv1.ImportMode_IMPORT_MODE_REPLACE} {
			_, err := m.importText(c.kind, mode, oneEntry(c.kind, c.entry, c.value))
			info, _ := servicetest.Typed(t, c.entry+" "+c.field, err)
			meta := info.GetMetadata()
			if meta["file"] != c.file || meta["entry"] != c.entry || meta["entry_field"] != c.field {
				t.Errorf("%s: %v, %v", c.value, err, meta)
			}
			for _, part := range []string{c.file, c.entry, c.field} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s is not in %v", part, err)
				}
			}
		}
	}
	if after := fmt.Sprint(m.export()); after != before {
		t.Errorf("something has changed: %s, before %s", after, before)
	}
}

// TestImportsTakeWhatBrokersWrite beyond what a change may put in.
func TestImportsTakeWhatBrokersWrite(t *testing.T) {
	t.Parallel()
	m, _ := led(t)
	long := strings.Repeat("g", 255)
	for name, value := range map[string]string{
		"host-1.example.com": `{"order":true}`, "Some.Cluster": `{"perm":7}`, "%RETRY%g|1_TopicA": `{}`, "%RETRY%g+TopicA": `{}`, "%DLQ%" + long: `{}`,
		"static": `{"readQueueNums":0,"writeQueueNums":0}`, "rmq_sys_REVIVE_LOG_Some.Cluster": `{"unheardOf":{"a":[1]}}`,
	} {
		if _, err := m.importText(configsyncv1.Kind_KIND_TOPICS, merge, oneEntry(configsyncv1.Kind_KIND_TOPICS, name, value)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.importText(configsyncv1.Kind_KIND_CONSUMER_OFFSETS, merge, `{"offsetTable":{"%RETRY%g+TopicA@g":{0:-1,65534:7}}}`); err != nil {
		t.Error(err)
	}
}

// TestANodeLivesWithOddValues that a RocketMQ master told it, or its files held: they are kept, and a group is reset as a whole.
func TestANodeLivesWithOddValues(t *testing.T) {
	t.Parallel()
	m := newNode(t, 0, asyncMaster)
	if err := os.MkdirAll(strings.TrimSuffix(m.file("topics.json"), "topics.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range oddities {
		if c.field == "readQueueNums" || c.field == "queue" || c.entry == "Group Z" {
			if err := os.WriteFile(m.file(c.file), []byte(oneEntry(c.kind, c.entry, c.value)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.start().awaitOpen()
	held := fmt.Sprint(m.export())
	for _, part := range []string{`"readQueueNums":-5`, "65535:7", "Group Z"} {
		if !strings.Contains(held, part) {
			t.Errorf("%s is not in %s", part, held)
		}
	}
	r, err := m.offsets().Reset(t.Context(), &configsyncv1.ResetRequest{Topic: "TopicZ", Group: "GroupZ", To: &configsyncv1.ResetRequest_Offset{Offset: 3}})
	if err != nil || len(r.GetOffsets()) != 2 {
		t.Errorf("reset: %v, %v", r, err)
	}
}
