package message

import "bytes"

const (
	nameSeparator byte = 0x01 // between name and value
	pairSeparator byte = 0x02 // behind each pair; some RocketMQ versions leave out the last one
)

// AppendProperty appends one encoded pair: name 01 value 02. Name and value must satisfy CheckProperty.
func AppendProperty(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, nameSeparator)
	dst = append(dst, value...)
	return append(dst, pairSeparator)
}

// AppendProperties appends encoded properties behind others with exactly one separator between them, as a store does
// with the properties of a whole batch.
func AppendProperties(dst, props []byte) []byte {
	if len(dst) > 0 && len(props) > 0 && dst[len(dst)-1] != pairSeparator {
		dst = append(dst, pairSeparator)
	}
	return append(dst, props...)
}

// EachProperty calls f with each pair in order, repeated names included, until f returns false. The slices alias props.
// It reads what every RocketMQ version wrote: the last separator may be missing; pairs without a name, without a value
// or without the separator between them are passed over.
func EachProperty(props []byte, f func(name, value []byte) bool) {
	for len(props) > 0 {
		var name, value []byte
		name, value, props = nextProperty(props)
		if name != nil && !f(name, value) {
			return
		}
	}
}

// nextProperty cuts off the first pair; its name is nil when the pair does not count.
func nextProperty(props []byte) (name, value, rest []byte) {
	pair := props
	if i := bytes.IndexByte(props, pairSeparator); i >= 0 {
		pair, rest = props[:i], props[i+1:]
	}
	if i := bytes.IndexByte(pair, nameSeparator); i > 0 && i < len(pair)-1 {
		name, value = pair[:i], pair[i+1:]
	}
	return name, value, rest
}

// FindProperty returns the value of the last pair of that name, aliasing props. It allocates nothing.
func FindProperty(props []byte, name string) ([]byte, bool) {
	var found []byte
	for len(props) > 0 {
		var n, v []byte
		n, v, props = nextProperty(props)
		if string(n) == name {
			found = v
		}
	}
	return found, found != nil
}

// Property returns the value of a property, aliasing the record; where a name occurs more than once the last one wins.
// It allocates nothing.
func (v *View) Property(name string) ([]byte, bool) { return FindProperty(v.Properties, name) }

// trimCRC returns props without a `__CRC32#` property at their end: it belongs to the record that it was read from.
func trimCRC(props []byte) []byte {
	for endsInCRC(props) {
		props = props[:len(props)-CRCSize]
	}
	return props
}
