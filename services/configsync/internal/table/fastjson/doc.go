// Package fastjson reads and writes the JSON that RocketMQ's fastjson 1.x does: maps with integer keys have them unquoted
// ({0:5,1:6}), the pretty form has tabs and no blanks behind colons, and such maps stay on one line in it:
//
//	"TopicA@group-one":{0:45,1:45
//	},
//
// Reader pulls values out of a text without building a tree; it takes quoted and unquoted integer keys and refuses
// everything that is not whole: garbage, a text that ends early, bytes behind the end, depth beyond MaxDepth, text that is
// no UTF-8. Two errors part what cannot be read from what is not understood: ErrSyntax says that the text is not JSON, ErrShape that it
// is, but a value has another type than the reader asked for, as one written by a newer version may have.
//
// Writer builds both forms. Raw keeps a value that nobody here knows, without its blanks, for writing it again.
//
// What this package does not do: it knows no fields, does not reflect and does not compare keys for duplicates.
package fastjson
