package grpcx

import (
	"context"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Domain is the domain of every ErrorInfo that Tandem sends.
const Domain = "tandem"

// remedyKey is the key of Error.Remedy in the metadata of an ErrorInfo.
const remedyKey = "remedy"

// Reasons of errors that carry no ErrorInfo: the client or gRPC itself made them.
const (
	ReasonUnreachable     = "UNREACHABLE"
	ReasonMessageTooLarge = "MESSAGE_TOO_LARGE"
	reasonRPC             = "RPC_" // and the code's name
	// UnreachableText begins the message of an UNREACHABLE error; behind it is why.
	UnreachableText = "cannot reach the server: "
	noAnswer        = "no answer"
)

var classCodes = [...]codes.Code{
	errdefs.Unknown:            codes.Unknown,
	errdefs.Canceled:           codes.Canceled,
	errdefs.InvalidArgument:    codes.InvalidArgument,
	errdefs.DeadlineExceeded:   codes.DeadlineExceeded,
	errdefs.NotFound:           codes.NotFound,
	errdefs.AlreadyExists:      codes.AlreadyExists,
	errdefs.PermissionDenied:   codes.PermissionDenied,
	errdefs.ResourceExhausted:  codes.ResourceExhausted,
	errdefs.FailedPrecondition: codes.FailedPrecondition,
	errdefs.Aborted:            codes.Aborted,
	errdefs.OutOfRange:         codes.OutOfRange,
	errdefs.Unimplemented:      codes.Unimplemented,
	errdefs.Internal:           codes.Internal,
	errdefs.Unavailable:        codes.Unavailable,
	errdefs.DataLoss:           codes.DataLoss,
	errdefs.Unauthenticated:    codes.Unauthenticated,
}

// CodeOf returns the gRPC code of a class.
func CodeOf(c errdefs.Class) codes.Code {
	if int(c) < len(classCodes) {
		return classCodes[c]
	}
	return codes.Unknown
}

// ClassOf returns the class of a gRPC code.
func ClassOf(code codes.Code) errdefs.Class {
	return errdefs.Class(max(slices.Index(classCodes[:], code), int(errdefs.Unknown))) //nolint:gosec // an index of classCodes
}

// ToStatus turns a handler's error into a gRPC status with ErrorInfo and, where they apply, BadRequest and RetryInfo. A
// status error passes unchanged. An error without a class becomes UNKNOWN with a fixed text: its own may hold what the
// caller must not see.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if e := errdefs.As(err); e != nil {
		return build(e, fieldErrors(err))
	}
	var s interface{ GRPCStatus() *status.Status }
	switch {
	case errors.As(err, &s):
		return s.GRPCStatus().Err()
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call's deadline passed")
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	}
	return build(errdefs.New(errdefs.Unknown, "UNEXPECTED", "unexpected error, see the server's log"), nil)
}

func build(e *errdefs.Error, fields []*errdefs.Error) error {
	info := &errdetails.ErrorInfo{Reason: e.Reason, Domain: Domain, Metadata: make(map[string]string, len(e.Meta)+1)}
	for k, v := range e.Meta {
		info.Metadata[k] = strings.ToValidUTF8(v, "\uFFFD")
	}
	if e.Remedy != "" {
		info.Metadata[remedyKey] = e.Remedy
	}
	details := []protoadapt.MessageV1{info}
	text := publicText(e)
	switch {
	case len(fields) > 1:
		bad := &errdetails.BadRequest{}
		var parts []string
		for _, f := range fields {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: f.Field, Description: publicText(f), Reason: f.Reason})
			parts = append(parts, f.Field+": "+publicText(f))
		}
		details = append(details, bad)
		text = strings.Join(parts, "; ")
	case e.Field != "":
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: e.Field, Description: text, Reason: e.Reason},
		}})
		text = e.Field + ": " + text
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if e.Remedy != "" {
		text += "; " + e.Remedy
	}
	st := status.New(CodeOf(e.Class), strings.ToValidUTF8(text, "\uFFFD"))
	if full, err := st.WithDetails(details...); err == nil {
		st = full
	}
	return st.Err()
}

// publicText is the message with those causes that are known to hold no paths.
func publicText(e *errdefs.Error) string {
	if e.Cause == nil {
		return e.Msg
	}
	if inner := errdefs.As(e.Cause); inner != nil {
		return e.Msg + ": " + publicText(inner)
	}
	var no syscall.Errno
	switch {
	case errors.As(e.Cause, &no):
		return e.Msg + ": " + no.Error()
	case errors.Is(e.Cause, context.DeadlineExceeded), errors.Is(e.Cause, context.Canceled), errors.Is(e.Cause, io.EOF):
		return e.Msg + ": " + e.Cause.Error()
	}
	return e.Msg
}

// fieldErrors returns the field errors of a join; one alone is found by errdefs.As.
func fieldErrors(err error) []*errdefs.Error {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return nil
	}
	var out []*errdefs.Error
	for _, one := range many.Unwrap() {
		if e := errdefs.As(one); e != nil && e.Field != "" && e.Class == errdefs.InvalidArgument {
			out = append(out, e)
		}
	}
	return out
}

// FromStatus turns the error of a gRPC call back into the errdefs.Error that the server returned; several field errors
// become a join. A status without Tandem's ErrorInfo gets the reason UNREACHABLE, MESSAGE_TOO_LARGE or RPC_<code>. Errors
// that are no status, io.EOF among them, pass unchanged.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) {
		return err
	}
	return fromStatus(s.GRPCStatus())
}

func fromStatus(st *status.Status) error {
	var info *errdetails.ErrorInfo
	var bad *errdetails.BadRequest
	var retry time.Duration
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest:
			bad = d
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration()
		}
	}
	if info == nil {
		return foreign(st)
	}
	if n := len(bad.GetFieldViolations()); n > 1 {
		all := make([]error, 0, n)
		for _, v := range bad.GetFieldViolations() {
			all = append(all, &errdefs.Error{
				Class: ClassOf(st.Code()), Reason: v.GetReason(), Field: v.GetField(), Msg: v.GetDescription(),
			})
		}
		return errors.Join(all...)
	}
	e := &errdefs.Error{Class: ClassOf(st.Code()), Reason: info.GetReason(), Msg: st.Message(), RetryAfter: retry}
	for k, v := range info.GetMetadata() {
		if k == remedyKey {
			e.Remedy = v
			e.Msg = strings.TrimSuffix(e.Msg, "; "+v)
			continue
		}
		e = e.With(k, v)
	}
	if len(bad.GetFieldViolations()) == 1 {
		e.Field = bad.GetFieldViolations()[0].GetField()
		e.Msg = strings.TrimPrefix(e.Msg, e.Field+": ")
	}
	return e
}

// foreign names an error that no Tandem handler made.
func foreign(st *status.Status) error {
	e := errdefs.New(ClassOf(st.Code()), reasonRPC+codeName(st.Code()), st.Message())
	switch st.Code() {
	case codes.Unavailable:
		e.Reason, e.Msg, e.Remedy = ReasonUnreachable, UnreachableText+connectionText(st.Message()), connectionRemedy(st.Message(), TLS{})
		e.RetryAfter = minBackoff
	case codes.ResourceExhausted:
		if strings.Contains(st.Message(), "message larger than max") {
			e.Reason = ReasonMessageTooLarge
			e.Remedy = "send or ask for less at a time, or raise the message limit on both sides"
		}
	case codes.DeadlineExceeded:
		return e.WithMsg("the call did not end in time").Wrap(context.DeadlineExceeded)
	case codes.Canceled:
		return e.WithMsg("the call ended early").Wrap(context.Canceled)
	default: // class and text say it all
	}
	return e
}

var capital = regexp.MustCompile("(.)([A-Z])")

func codeName(c codes.Code) string {
	return strings.ToUpper(capital.ReplaceAllString(c.String(), "${1}_$2"))
}

// connectionText peels gRPC's wrapping off the reason of a failed connection.
func connectionText(s string) string {
	if silent(s) {
		return noAnswer
	}
	for _, p := range []string{"last connection error: ", "connection error: desc = \"", "transport: "} {
		if _, rest, ok := strings.Cut(s, p); ok {
			s = rest
		}
	}
	s = strings.TrimPrefix(s, "Error while dialing: ")
	return strings.TrimSuffix(s, "\"")
}

// silent reports whether a connection was made, or begun, and then given up in the end.
func silent(s string) bool {
	return strings.Contains(s, "error reading server preface") && strings.Contains(s, "use of closed network connection") ||
		strings.Contains(s, "authentication handshake failed") && strings.Contains(s, "context deadline exceeded")
}

const (
	rawPort     = "it looks like a storage's raw port (haListen, 10912 by default): name the gRPC one (listen, 10911)"
	foreignCert = "the client's certificate is not signed by a CA that the server trusts (the server's caFile): set certFile and keyFile to a pair that is"
)

// connectionRemedy says what to do about the usual reasons of a failed connection of a client with these settings.
func connectionRemedy(s string, t TLS) string {
	if silent(s) {
		return "the process there may be stopped or overloaded, or it is no gRPC server"
	}
	missing, hangup := "the server wants a client certificate: set certFile and keyFile", "if the server speaks TLS, set the TLS settings here too. Else "+rawPort
	if t.CertFile != "" {
		missing = foreignCert // it was kept back, as it comes from none of the CAs that the server has named
	}
	if t.Enabled() {
		hangup = "the server hung up, as it does where " + missing + ". Else " + rawPort
	}
	for _, r := range []struct{ text, remedy string }{
		{"connection refused", "check the address and that the service runs"},
		{"no such host", "check the host's name"},
		{"does not look like a TLS handshake", "the server speaks plain text: drop the TLS settings here or set them there"},
		{"certificate required", missing},
		// A server of TLS 1.3 that misses the client's certificate may have hung up before its alert is read.
		{"broken pipe", hangup},
		{"connection reset", hangup},
		{"bad certificate", foreignCert},
		{"unknown certificate authority", foreignCert},
		{"x509:", "check caFile and the name that the server's certificate was made for"},
		{"looked like an HTTP/1.1 header", "it is an HTTP port, such as telemetry.debugListen: name the gRPC one (listen, 10911)"},
		{"error reading server preface", hangup},
	} {
		if strings.Contains(s, r.text) {
			return r.remedy
		}
	}
	return ""
}
