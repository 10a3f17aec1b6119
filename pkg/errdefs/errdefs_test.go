package errdefs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

func TestErrorText(t *testing.T) {
	base := errdefs.New(errdefs.OutOfRange, "OFFSET_GAP", "offset does not follow the log's end")
	err := base.With("offset", 12).With("end", 7).Wrap(io.ErrUnexpectedEOF).WithField("from").WithRemedy("ask from 7")
	want := "from: offset does not follow the log's end (end=7, offset=12): unexpected EOF; ask from 7"
	if err.Error() != want {
		t.Errorf("got  %q\nwant %q", err, want)
	}
	if base.Meta != nil || base.Cause != nil || base.Field != "" {
		t.Errorf("the sentinel was changed: %+v", base)
	}
}

func TestIsComparesClassAndReason(t *testing.T) {
	gap := errdefs.New(errdefs.OutOfRange, "OFFSET_GAP", "gap")
	wrapped := fmt.Errorf("append: %w", gap.With("offset", 1).WithMsg("other words"))
	if !errors.Is(wrapped, gap) {
		t.Error("a refinement is not its sentinel")
	}
	if errors.Is(wrapped, errdefs.New(errdefs.OutOfRange, "OTHER", "gap")) {
		t.Error("another reason matched")
	}
	if errors.Is(wrapped, errdefs.New(errdefs.Aborted, "OFFSET_GAP", "gap")) {
		t.Error("another class matched")
	}
	if !errors.Is(gap.Wrap(io.EOF), io.EOF) {
		t.Error("the cause is not found")
	}
}

func TestClassAndReasonOf(t *testing.T) {
	for _, tc := range []struct {
		err    error
		class  errdefs.Class
		reason string
	}{
		{errdefs.Invalid("topic", "is empty"), errdefs.InvalidArgument, "INVALID_FIELD"},
		{fmt.Errorf("x: %w", errdefs.New(errdefs.DataLoss, "ROT", "rot")), errdefs.DataLoss, "ROT"},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), errdefs.DeadlineExceeded, ""},
		{context.Canceled, errdefs.Canceled, ""},
		{io.EOF, errdefs.Unknown, ""},
	} {
		if c, r := errdefs.ClassOf(tc.err), errdefs.ReasonOf(tc.err); c != tc.class || r != tc.reason {
			t.Errorf("%v: got %v %q, want %v %q", tc.err, c, r, tc.class, tc.reason)
		}
	}
}
