package topics

import "github.com/tandemlog/tandem/pkg/errdefs"

// Errors.
var (
	// ErrNoQueues: there is no queue to put messages into.
	ErrNoQueues = errdefs.New(errdefs.FailedPrecondition, "TOPIC_WITHOUT_QUEUES", "topic has no queues").WithField("topic")
	// ErrNoPermission: the table forbids it. Metadata: topic, perm.
	ErrNoPermission = errdefs.New(errdefs.PermissionDenied, "NO_PERMISSION", "the topic does not permit it").WithField("topic")
	// ErrNotFound: the topic is not in the table, and is not created either.
	ErrNotFound = errdefs.New(errdefs.NotFound, "TOPIC_NOT_FOUND", "there is no such topic").WithField("topic")
	// ErrNotCreated: the topic is not in the table, and its creation did not come about in time.
	ErrNotCreated = errdefs.New(errdefs.Unavailable, "TOPIC_NOT_CREATED", "the topic is new and could not be created").
			WithField("topic").WithRetry(minBackoff)
	errNotSeen = errdefs.New(errdefs.Unavailable, "TOPIC_NOT_SEEN", "the topic table has it, and the view of the table does not show it yet")
	// ErrRefused: the configsync does not take the topic as it is.
	ErrRefused = errdefs.New(errdefs.InvalidArgument, "TOPIC_REFUSED", "the topic is new and the configsync refuses it").WithField("topic")
	// ErrCreations: too many topics are being created.
	ErrCreations = errdefs.New(errdefs.ResourceExhausted, "TOO_MANY_NEW_TOPICS", "too many topics are being created at once").
			WithField("topic").WithRetry(minBackoff)
)

// Reasons not to take what the configsync sent; the view stays as it is.
var (
	errConnecting = errdefs.New(errdefs.Unavailable, "CONNECTING", "the configsync has not answered yet").
			WithRemedy("wait; else start it, or correct configsync.address")
	errBadAnswer = errdefs.New(errdefs.DataLoss, "BAD_ANSWER", "the configsync's answer makes no sense").
			WithRemedy("storage and configsync should run the same version")
	errGap = errdefs.New(errdefs.Aborted, "DELTA_GAP", "the change begins at another version than the view's").
		WithRemedy("nothing: the whole table is asked for")
	errEmpty = errdefs.New(errdefs.FailedPrecondition, "EMPTY_TABLE", "an empty table does not replace one with topics").
			WithRemedy("see whether the configsync has lost its folder; if it is to be empty, restart this storage")
	errStalled = errdefs.New(errdefs.DeadlineExceeded, "STALLED", "the configsync was silent in the middle of an answer")
	errEnded   = errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the configsync has ended the watch stream")
)
