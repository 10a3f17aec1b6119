package register

import (
	"hash/crc32"
	"maps"
	"slices"
	"strconv"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/fastjson"
)

// memberTopic is the topic, of a broker's name, by which its slaves know whether they are alone.
const memberTopic = "rmq_sys_SYNC_BROKER_MEMBER_"

// Registration returns the fields and the body of a 103.
func Registration(cluster, name, addr, haAddr string, topics *table.Table) (fields map[string]string, body []byte) {
	body = appendTopics(nil, name, topics)
	return with(identity(cluster, name, addr), map[string]string{
		"haServerAddr": haAddr, "compressed": "false", "bodyCrc32": strconv.Itoa(int(crc32.ChecksumIEEE(body) & 0x7fffffff)),
	}), body
}

// appendTopics appends the body: the topics, and of the two that are always there those that are not among them. The version is the
// table's: a name server looks at the topics only when it is another one.
func appendTopics(b []byte, broker string, topics *table.Table) []byte {
	more := map[string]*entry.TopicConfig{}
	for _, name := range []string{broker, memberTopic + broker} {
		if topics.Topic(name) == nil {
			t := entry.NewTopic(name)
			t.ReadQueues, t.WriteQueues, t.Perm = 1, 1, entry.PermInherit
			more[name] = t
		}
	}
	w := fastjson.NewWriter(b, false)
	w.Begin()
	w.Key("filterServerList")
	w.BeginArray()
	w.End()
	w.Key("topicConfigSerializeWrapper")
	w.Begin()
	w.Key("dataVersion")
	w.Begin()
	v := topics.Version()
	for _, f := range []struct {
		name string
		n    int64
	}{{"counter", v.Counter}, {"stateVersion", v.State}, {"timestamp", v.Timestamp}} {
		w.Key(f.name)
		w.Int(f.n)
	}
	w.End()
	w.Key("topicConfigTable")
	w.Begin()
	for _, name := range slices.Sorted(maps.Keys(more)) {
		w.Key(name)
		more[name].Write(w)
	}
	for e := range topics.Ascend("") {
		if t, ok := e.Value.(*entry.TopicConfig); ok {
			w.Key(e.Key)
			t.Write(w)
		}
	}
	w.End()
	w.End()
	w.End()
	return w.Bytes()
}
