package frame

import (
	"encoding/binary"
	"maps"
	"slices"
)

// cut reads from the front of a header; short says that it ended early.
type cut struct {
	rest  []byte
	short bool
}

func (c *cut) bytes(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.short = true
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cut) i32() int32 {
	b := c.bytes(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b)) //nolint:gosec // two's complement
}

func (c *cut) i16() int32 {
	b := c.bytes(2)
	if b == nil {
		return 0
	}
	return int32(int16(binary.BigEndian.Uint16(b))) //nolint:gosec // two's complement
}

func parseBinary(header []byte) (*Command, error) {
	in := &cut{rest: header}
	c := &Command{Encoding: Binary, Code: in.i16()}
	if b := in.bytes(1); b != nil {
		c.Language = Language(b[0])
	}
	c.Version, c.Opaque, c.Flag = in.i16(), in.i32(), in.i32()
	c.Remark = string(in.bytes(int(in.i32())))
	fields := cut{rest: in.bytes(int(in.i32()))}
	if in.short || len(in.rest) > 0 {
		return nil, ErrHeader.With("length", len(header)).With("behind", len(in.rest))
	}
	for len(fields.rest) > 0 {
		key := string(fields.bytes(int(fields.i16())))
		value := string(fields.bytes(int(fields.i32())))
		if fields.short {
			return nil, ErrHeader.WithMsg("an extension field is not whole")
		}
		if c.Fields == nil {
			c.Fields = map[string]string{}
		}
		c.Fields[key] = value
	}
	return c, nil
}

func appendBinary(b []byte, c *Command) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(c.Code)) //nolint:gosec // two's complement
	b = append(b, byte(c.Language))
	b = binary.BigEndian.AppendUint16(b, uint16(c.Version)) //nolint:gosec // two's complement
	b = binary.BigEndian.AppendUint32(b, uint32(c.Opaque))  //nolint:gosec // two's complement
	b = binary.BigEndian.AppendUint32(b, uint32(c.Flag))    //nolint:gosec // two's complement
	b = appendText32(b, c.Remark)
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(name))) //nolint:gosec // see Append
		b = append(b, name...)
		b = appendText32(b, c.Fields[name])
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4)) //nolint:gosec // a header is small
	return b
}

func appendText32(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s))) //nolint:gosec // a header is small
	return append(b, s...)
}
