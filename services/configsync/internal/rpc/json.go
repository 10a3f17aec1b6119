package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
)

// quoted is s as a JSON string.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(b)
}

// compactObject returns a JSON object without blanks.
func compactObject(s string) (string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &object); err != nil {
		return "", err
	}
	if object == nil {
		return "", errors.New("null")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		return "", err
	}
	return b.String(), nil
}
