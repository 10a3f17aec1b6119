package errdefs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Class says what kind of failure an error is. The names follow the gRPC codes that they become.
type Class uint8

// Classes.
const (
	Unknown Class = iota
	Canceled
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

var classNames = [...]string{
	"unknown", "canceled", "invalid argument", "deadline exceeded", "not found", "already exists",
	"permission denied", "resource exhausted", "failed precondition", "aborted", "out of range",
	"unimplemented", "internal", "unavailable", "data loss", "unauthenticated",
}

// String returns the class in words.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Error is an error with a class and a reason. Values are immutable: With, Wrap and the others return copies.
type Error struct {
	Class  Class
	Reason string // UPPER_SNAKE_CASE
	Msg    string // what happened, lower case, no full stop
	Remedy string // what the caller or the operator can do; may be empty
	Field  string // the request or config field at fault; may be empty
	// RetryAfter is the shortest useful pause before another try; 0: not worth one without a change.
	RetryAfter time.Duration
	Meta       map[string]string
	Cause      error
}

// New makes a sentinel.
func New(class Class, reason, msg string) *Error {
	return &Error{Class: class, Reason: reason, Msg: msg}
}

// Newf makes an error with a formatted message.
func Newf(class Class, reason, format string, args ...any) *Error {
	return &Error{Class: class, Reason: reason, Msg: fmt.Sprintf(format, args...)}
}

// Invalid is the error of a field that breaks a rule.
func Invalid(field, format string, args ...any) *Error {
	return &Error{Class: InvalidArgument, Reason: "INVALID_FIELD", Field: field, Msg: fmt.Sprintf(format, args...)}
}

// Error returns field, message, metadata in the order of their keys, cause and remedy on one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field)
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	for i, k := range slices.Sorted(maps.Keys(e.Meta)) {
		if i == 0 {
			b.WriteString(" (")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(k)
		b.WriteByte('=')
		b.WriteString(e.Meta[k])
	}
	if len(e.Meta) > 0 {
		b.WriteByte(')')
	}
	if e.Cause != nil {
		b.WriteString(": ")
		b.WriteString(e.Cause.Error())
	}
	if e.Remedy != "" {
		b.WriteString("; ")
		b.WriteString(e.Remedy)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an Error of the same class and reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Class == e.Class && t.Reason == e.Reason
}

// With returns a copy that carries one more piece of metadata.
func (e *Error) With(key string, value any) *Error {
	c := *e
	c.Meta = make(map[string]string, len(e.Meta)+1)
	maps.Copy(c.Meta, e.Meta)
	c.Meta[key] = fmt.Sprint(value)
	return &c
}

// Wrap returns a copy with a cause.
func (e *Error) Wrap(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// WithMsg returns a copy with another message.
func (e *Error) WithMsg(format string, args ...any) *Error {
	c := *e
	c.Msg = fmt.Sprintf(format, args...)
	return &c
}

// WithField returns a copy that names the field at fault.
func (e *Error) WithField(field string) *Error {
	c := *e
	c.Field = field
	return &c
}

// WithRemedy returns a copy that says what to do.
func (e *Error) WithRemedy(format string, args ...any) *Error {
	c := *e
	c.Remedy = fmt.Sprintf(format, args...)
	return &c
}

// WithRetry returns a copy that says when to try again.
func (e *Error) WithRetry(after time.Duration) *Error {
	c := *e
	c.RetryAfter = after
	return &c
}

// As returns the first Error in err's chain, or nil.
func As(err error) *Error {
	e, _ := errors.AsType[*Error](err) // allocates nothing
	return e
}

// ClassOf returns the class of err: its own, or that of a context error, else Unknown.
func ClassOf(err error) Class {
	if e := As(err); e != nil {
		return e.Class
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Unknown
}

// ReasonOf returns the reason of err, or "" when it has none.
func ReasonOf(err error) string {
	if e := As(err); e != nil {
		return e.Reason
	}
	return ""
}
