// Package topics is the storage's view of the topic table: which topics there are and how many queues they have.
//
// The table is kept by the configsync service. A storage that runs without one uses a static view, in which every topic
// has defaultTopicQueueNums queues, as a RocketMQ broker with autoCreateTopicEnable gives a new one.
//
// The caller has checked the topic's name (message.CheckTopic): a view does not judge characters.
//
// RocketMQ's name: TopicConfigManager, of which this is the reading side.
//
// What this package does not do: it changes no table and creates no queue.
package topics
