package paging

import (
	"encoding/base64"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Default and Max are the entries of a page. Behind MaxBytes of them it ends earlier: entries have a megabyte at most, so that each
// page fits into a reply.
const (
	Default  = 1000
	Max      = 1024
	MaxBytes = 2 << 20
)

// Size returns the size of a page that a request asks for.
func Size(n int32) (int, error) {
	if n < 0 {
		return 0, errdefs.Invalid("page_size", "%d is negative", n)
	}
	if n == 0 {
		return Default, nil
	}
	return min(int(n), Max), nil
}

// Token is the token of a page that ended with key.
func Token(key string) string { return base64.RawURLEncoding.EncodeToString([]byte("k" + key)) }

// Parse returns the key that a token was made of; "" for "".
func Parse(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	key, ok := strings.CutPrefix(string(raw), "k")
	if err != nil || !ok || key == "" {
		return "", errdefs.Invalid("page_token", "is not a next_page_token of this list")
	}
	return key, nil
}
