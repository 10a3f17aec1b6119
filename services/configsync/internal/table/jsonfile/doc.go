// Package jsonfile reads and writes the four tables in RocketMQ's JSON: the pretty form of its files and the compact one of
// its remoting answers.
//
//	topics.json             {dataVersion, topicConfigTable: {topic: config}}
//	consumerOffset.json     {dataVersion, offsetTable: {topic@group: {queue: offset}}}
//	delayOffset.json        {dataVersion, offsetTable: {level: offset}}
//	subscriptionGroup.json  {dataVersion, forbiddenTable, subscriptionGroupTable: {group: config}}
//
// Both dialects are read: that of RocketMQ 4 without stateVersion, and without any version beside offsets, and that of 5.
// A table that was not changed is written in the one it came in; after a change the version is written whole, which a
// broker of version 4 ignores. Fields that nobody here knows are kept. Of an offset only the number is written: the epochs of
// resets have no place in these files, and the registry keeps them.
//
// Decode takes all or nothing: an empty text, half of one, or garbage is ErrSyntax; JSON that is not a table of the kind
// (the table is missing, a known field has another type) is ErrShape and names the field.
package jsonfile
