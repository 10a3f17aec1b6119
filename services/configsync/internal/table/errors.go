package table

import "github.com/tandemlog/tandem/pkg/errdefs"

// Reasons not to take what another node has; the own table stays as it is.
var (
	// ErrKind: a table or an entry of another kind.
	ErrKind = errdefs.New(errdefs.InvalidArgument, "WRONG_KIND", "not of this kind")
	// ErrOlder: the version is older than the own one.
	ErrOlder = errdefs.New(errdefs.FailedPrecondition, "OLDER_VERSION", "the table is older than the own one")
	// ErrOtherContent: the own version, or the one that the delta leads to, with another content.
	ErrOtherContent = errdefs.New(errdefs.DataLoss, "OTHER_CONTENT", "the same version with another content")
	// ErrNotWhole: a table of which a part is missing.
	ErrNotWhole = errdefs.New(errdefs.DataLoss, "TABLE_NOT_WHOLE", "the table is not whole")
	// ErrEmpty: an empty table that does not say that its entries were deleted.
	ErrEmpty = errdefs.New(errdefs.FailedPrecondition, "EMPTY_TABLE", "an empty table does not replace one with entries")
	// ErrGap: a delta that does not begin at the own version.
	ErrGap = errdefs.New(errdefs.Aborted, "DELTA_GAP", "the delta begins at another version than the own one")
	// ErrDuplicate: a key that is there already.
	ErrDuplicate = errdefs.New(errdefs.InvalidArgument, "DUPLICATE_KEY", "the key stands there twice")
	// ErrEpochs: no reset is possible any more.
	ErrEpochs = errdefs.New(errdefs.ResourceExhausted, "EPOCHS_EXHAUSTED", "the last reset epoch is used up")
)
