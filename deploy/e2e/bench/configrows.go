package main

// Probes of the config sync service.
const (
	checkOf1, checkOf100k       = "round without change, 1 topic", "round without change, 100,000 topics"
	deltaOf1, deltaOf100k       = "delta of one topic, 1 topic", "delta of one topic, 100,000 topics"
	fetchOf100k                 = "fetch of one topic, 100,000 topics"
	emptyCall, emptyStream      = "empty unary call", "empty stream"
	tableOf1k, tableOf100k      = "whole table, 1,000 topics", "whole table, 100,000 topics"
	protobufOf100k, jsonOf100k  = "protobuf there and back, 100,000 topics", "JSON there and back, 100,000 topics"
	ownJSONOf100k               = "own JSON to a table, 100,000 topics"
	unaryCommit, streamCommit   = "unary Commit, c=64", "CommitStream, c=512"
	commitsTogether, noopCommit = "CommitStream, 16 in a request, c=512", "no-op Commit, c=64"
	quarterScale, fullScale     = "config at a quarter of the scale", "config at scale"
)

// configRows are the lines of the config sync service.
func configRows() []row {
	p50 := func(a, b string) formula { return over(figure{a, "p50 us"}, figure{b, "p50 us"}) }
	rate := func(a, b string) formula { return over(figure{a, "per second"}, figure{b, "per second"}) }
	return append([]row{
		{"9", "config round without change, p50 at 100,000 topics / at 1", p50(checkOf100k, checkOf1), atMost(1.3)},
		{"9", "the same at 100,000 / a unary call that does nothing", p50(checkOf100k, emptyCall), atMost(1.3)},
		{"9", "config round that brings one topic, p50 at 100,000 topics / at 1", p50(deltaOf100k, deltaOf1), atMost(1.3)},
		{"9", "the same at 100,000 / a unary call that does nothing", p50(deltaOf100k, emptyCall), atMost(1.3)},
		{"9", "the topic by Fetch, at 100,000 / a stream that brings nothing", p50(fetchOf100k, emptyStream), atMost(1.3)},
		{"10", "config full table, time for each topic at 100,000 / at 1,000", scaled(p50(tableOf100k, tableOf1k), 0.01), atMost(1.2)},
		{"10", "config full table of 100,000 / protobuf of the same in memory", p50(tableOf100k, protobufOf100k), atMost(2)},
		{"10", "JSON of the same in memory / config full table of 100,000", p50(jsonOf100k, tableOf100k), atLeast(6)},
		{"10", "a table by RocketMQ's JSON in memory / config full table of 100,000", p50(ownJSONOf100k, tableOf100k), goal{}},
		{"commit", "unary Commit / a call that does nothing, c=64", rate(unaryCommit, noopCommit), atLeast(0.7)},
		{"commit", "CommitStream, an offset a request, c=512 / a call that does nothing, c=64", rate(streamCommit, noopCommit), atLeast(5)},
		{"commit", "the same with 16 offsets in a request, offsets", scaled(rate(commitsTogether, noopCommit), 16), atLeast(5)},
	}, scaleRows()...)
}

// scaleRows are those of a group of nine with 100,000 topics, 20,000 groups and 1,000,000 offsets.
func scaleRows() []row {
	at := func(name string) formula { return only(figure{fullScale, name}) }
	linear := func(name string) formula {
		return scaled(over(figure{fullScale, name}, figure{quarterScale, name}), 0.25)
	}
	return []row{
		{"config", "a change on each of 8 slaves, one a second, p99, ms", at("change p99 ms"), atMost(1000)},
		{"config", "a round without change, bytes of both directions", at("idle round B"), atMost(1023)},
		{"config", "largest message, MiB", at("largest message MiB"), atMost(4)},
		{"config", "first sync of 8 slaves at once, s", at("first sync s"), goal{}},
		{"config", "master's memory at most, MiB", at("master most MiB"), goal{}},
		{"config", "the same for each entry / at a quarter of the entries", linear("master most MiB"), atMost(1.2)},
		{"config", "a slave's memory at most, MiB", at("slave most MiB"), goal{}},
		{"config", "the same for each entry / at a quarter of the entries", linear("slave most MiB"), atMost(1.2)},
	}
}

// configProbes are all measurements of the config sync service.
func configProbes() []probe {
	const few, many = 1, 100_000
	return []probe{
		{checkOf1, tables(few, "check", 2000), inside},
		{checkOf100k, tables(many, "check", 2000), inside},
		{deltaOf1, tables(few, "delta", 500), inside},
		{deltaOf100k, tables(many, "delta", 500), inside},
		{fetchOf100k, tables(many, "fetch", 500), inside},
		{emptyCall, tables(many, "empty", 2000), inside},
		{emptyStream, tables(many, "empty-stream", 500), inside},
		{tableOf1k, tables(1000, "full", 100), inside},
		{tableOf100k, tables(many, "full", 5), inside},
		{protobufOf100k, tables(many, "protobuf", 5), inside},
		{jsonOf100k, tables(many, "json", 3), inside},
		{ownJSONOf100k, tables(many, "own-json", 5), inside},
		{unaryCommit, commitEach, outside},
		{streamCommit, commitBy(1), outside},
		{commitsTogether, commitBy(16), outside},
		{noopCommit, noopCommits, outside},
		{quarterScale, atScale(25_000, 12), once},
		{fullScale, atScale(100_000, 60), once},
	}
}
