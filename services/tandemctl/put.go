package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandemlog/tandem/pkg/client"
)

// putFlags are those of put.
type putFlags struct {
	topic      string
	queue      int32
	tag        string
	keys       []string
	properties []string
	acks       int32
	wait       time.Duration
	file       string
	count      int
	number     bool
	batch      int
	stream     bool
	resend     bool
	quiet      bool
}

func (a *app) putCommand() *cobra.Command {
	var f putFlags
	cmd := &cobra.Command{
		Use:   "put --topic TOPIC [BODY...]",
		Short: "Put messages and say where each one is",
		Long: "Put one message whose body is the arguments, or all of stdin when there are none;\n" +
			"with -f one message for each line of a file (- is stdin).\n\n" +
			"The exit code is 1 unless every message is PUT_OK.",
		Example: "  tandemctl put --topic demo hello\n" +
			"  tandemctl put --topic demo --tag t --key order-7 --acks 2 hello\n" +
			"  tandemctl put --topic demo --count 100000 --number --stream --quiet load\n" +
			"  seq 1000 | tandemctl put --topic demo -f - --batch 100",
		RunE: func(cmd *cobra.Command, args []string) error { return a.put(cmd.Context(), &f, args) },
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.topic, "topic", "t", "", "topic (required)")
	fs.Int32Var(&f.queue, "queue", -1, "queue `id`; -1: the storage chooses in turn")
	fs.StringVar(&f.tag, "tag", "", "tag")
	fs.StringSliceVar(&f.keys, "key", nil, "`key` to find it by; may be repeated")
	fs.StringArrayVar(&f.properties, "property", nil, "property as `name=value`; may be repeated")
	fs.Int32Var(&f.acks, "acks", -1, "slaves that must have it before PUT_OK; -1: as the storage is set up")
	fs.DurationVar(&f.wait, "wait", 0, "longest `time` to wait for slaves; 0: as the storage is set up")
	fs.StringVarP(&f.file, "file", "f", "", "put each line of this `file`; - is stdin")
	fs.IntVar(&f.count, "count", 1, "put the message this often")
	fs.BoolVar(&f.number, "number", false, "end each body with its number")
	fs.IntVar(&f.batch, "batch", 0, "put this many messages side by side in one call, all or none")
	fs.BoolVar(&f.stream, "stream", false, "put over one stream, without waiting for one message before the next")
	fs.BoolVar(&f.resend, "resend", false, "send again when the outcome is unknown; may store a message twice")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "only the sum at the end")
	return cmd
}

func (a *app) put(ctx context.Context, f *putFlags, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	bodies, failed, err := a.bodies(f, args)
	if err != nil {
		return err
	}
	props, err := parseProperties(f.properties)
	if err != nil {
		return err
	}
	return a.with(ctx, func(c *client.Client) error {
		ctx, giveUp := context.WithCancel(ctx)
		defer giveUp()
		t := &tally{a: a, quiet: f.quiet, counts: map[client.Status]int{}, began: time.Now(), giveUp: giveUp}
		o := client.ProducerOptions{SlaveTimeout: f.wait, Resend: f.resend, OnRetry: t.retrying}
		if f.acks >= 0 {
			o.Acks = &f.acks
		}
		messages := f.messages(bodies, props)
		p := c.Producer(o)
		switch {
		case f.stream:
			err = a.putStream(ctx, p, messages, t)
		case f.batch > 0:
			err = a.putBatches(ctx, p, messages, f.batch, t)
		default:
			err = a.putEach(ctx, p, messages, t)
		}
		if t.stranger != nil && !errors.Is(err, client.ErrOutcomeUnknown) {
			err = t.stranger
		}
		if t.tooFewSlaves() {
			t.group = a.groupOf(ctx, c, f.acks)
		}
		return errors.Join(*failed, t.end(err))
	})
}

func (f *putFlags) check(args []string) error {
	switch {
	case f.topic == "":
		return usagef("--topic is missing: tandemctl put --topic TOPIC BODY")
	case f.acks < -1:
		return usagef("--acks %d is negative", f.acks)
	case f.queue < -1:
		return usagef("--queue %d is negative", f.queue)
	case f.wait < 0:
		return usagef("--wait %v is negative", f.wait)
	case f.count < 1:
		return usagef("--count %d is not above 0", f.count)
	case f.file != "" && len(args) > 0:
		return usagef("give either a body or --file")
	case f.file != "" && f.count > 1:
		return usagef("--count repeats one message: it does not go with --file")
	case f.batch < 0 || f.batch > 4096:
		return usagef("--batch %d is not within 1 and 4096", f.batch)
	case f.batch > 0 && f.stream:
		return usagef("give either --batch or --stream")
	}
	return nil
}

func parseProperties(list []string) (map[string]string, error) {
	props := make(map[string]string, len(list))
	for _, p := range list {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usagef("--property %q is not name=value", p)
		}
		props[name] = value
	}
	return props, nil
}

// bodies returns the bodies to put, and where a failure to read them is found at the end.
func (a *app) bodies(f *putFlags, args []string) (iter.Seq[[]byte], *error, error) {
	failed := new(error)
	if f.file != "" {
		in := io.NopCloser(a.in)
		if f.file != "-" {
			file, err := os.Open(f.file)
			if err != nil {
				return nil, nil, &usageError{fmt.Errorf("cannot read the bodies: %w", err)}
			}
			if fi, err := file.Stat(); err == nil && fi.IsDir() {
				_ = file.Close() // only looked at
				return nil, nil, usagef("cannot read the bodies: %s is a folder", f.file)
			}
			in = file
		}
		return lines(in, failed), failed, nil
	}
	body := []byte(strings.Join(args, " "))
	if len(args) == 0 {
		if isTerminal(a.in) {
			return nil, nil, usagef("there is nothing to put: give a body, -f FILE, or pipe one in")
		}
		var err error
		if body, err = io.ReadAll(a.in); err != nil {
			return nil, nil, fmt.Errorf("read the body from stdin: %w", err)
		}
	}
	if len(body) == 0 {
		return nil, nil, usagef("the body is empty: a message has at least one byte")
	}
	return func(yield func([]byte) bool) {
		for range f.count {
			if !yield(body) {
				return
			}
		}
	}, failed, nil
}

// lines yields the lines of r that are not empty.
func lines(r io.ReadCloser, failed *error) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		defer func() { _ = r.Close() }() // only read from
		b := bufio.NewReaderSize(r, 1<<16)
		for {
			line, err := b.ReadBytes('\n')
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 && !yield(line) {
				return
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					*failed = fmt.Errorf("read the bodies: %w", err)
				}
				return
			}
		}
	}
}

// messages makes a message of each body.
func (f *putFlags) messages(bodies iter.Seq[[]byte], props map[string]string) iter.Seq[*client.Message] {
	return func(yield func(*client.Message) bool) {
		n := 0
		for body := range bodies {
			n++
			m := &client.Message{Topic: f.topic, Body: body, Tag: f.tag, Keys: f.keys, Properties: props}
			if f.number {
				m.Body = fmt.Appendf(slices.Clone(body), " %d", n)
			}
			if f.queue >= 0 {
				m.QueueId = &f.queue
			}
			if !yield(m) {
				return
			}
		}
	}
}

func (a *app) putEach(ctx context.Context, p *client.Producer, messages iter.Seq[*client.Message], t *tally) error {
	for m := range messages {
		one, cancel := context.WithTimeout(ctx, a.timeout)
		r, err := p.Put(one, m)
		cancel()
		if err != nil {
			return err
		}
		if err := t.add(r); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) putBatches(ctx context.Context, p *client.Producer, messages iter.Seq[*client.Message], size int, t *tally) error {
	var batch []*client.Message
	flush := func() error {
		one, cancel := context.WithTimeout(ctx, a.timeout)
		defer cancel()
		rs, err := p.PutBatch(one, batch)
		batch = batch[:0]
		for _, r := range rs {
			err = errors.Join(err, t.add(r))
		}
		return err
	}
	queue := int32(0) // a batch has one queue
	for m := range messages {
		if m.QueueId == nil {
			m.QueueId = &queue
		}
		if batch = append(batch, m); len(batch) == size {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch) > 0 {
		return flush()
	}
	return nil
}

func (a *app) putStream(ctx context.Context, p *client.Producer, messages iter.Seq[*client.Message], t *tally) error {
	var first error // of a single message
	ended := p.Stream(ctx, func(s *client.Sender) error {
		for m := range messages {
			_, err := s.Send(ctx, m, func(o client.Outcome) {
				err := o.Err
				if err != nil {
					t.failed++
				} else {
					err = t.add(o.Result)
				}
				if first == nil {
					first = err
				}
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if first != nil {
		return first // it says more than the end of the stream
	}
	return ended
}

// maxRows bounds the table of what went well.
const maxRows = 20

// tally prints results and sums them up.
type tally struct {
	a      *app
	quiet  bool
	rows   *stream
	counts map[client.Status]int
	total  int
	failed int // without a result
	began  time.Time
	reason string
	group  *group // set where slaves were too few

	trouble  trouble
	giveUp   context.CancelFunc
	hangUps  int   // tries, one after the other, in which nothing that speaks gRPC was there
	stranger error // why it was given up
}

// retrying tells once what keeps messages from getting through, and gives up where no storage is there.
func (t *tally) retrying(err error, _ time.Duration) {
	if !t.noStorage(err) {
		t.hangUps = 0
	} else if t.hangUps++; t.hangUps == maxHangUps {
		t.stranger = err
		t.giveUp()
		return
	}
	t.trouble.tell(t.a, err)
}

func (t *tally) add(r *client.Result) error {
	t.total++
	t.trouble = trouble{}
	t.counts[r.GetStatus()]++
	if r.GetStatus() != client.StatusOK && t.reason == "" {
		t.reason = r.GetReason()
	}
	switch {
	case t.quiet:
		return nil
	case t.a.json():
		return printProto(t.a.out, r)
	case t.total > maxRows && r.GetStatus() == client.StatusOK:
		if t.total == maxRows+1 {
			say(t.a.out, "...  from here on only what is not PUT_OK")
		}
		return nil
	}
	if t.rows == nil {
		t.rows = &stream{
			w: t.a.out, header: []string{"STATUS", "OFFSET", "SIZE", "QUEUE", "QUEUE OFFSET", "SLAVES", "MESSAGE ID"},
			widths: []int{19, 12, 7, 5, 12, 6, 0},
		}
	}
	t.rows.row(client.StatusName(r.GetStatus()), itoa(r.GetOffset()), itoa(r.GetSize()), itoa(r.GetQueueId()),
		itoa(r.GetQueueOffset()), itoa(r.GetAckedSlaves()), r.GetMessageId())
	return nil
}

// end prints the sum of several and returns the error of the command.
func (t *tally) end(err error) error {
	if !t.a.json() && (t.total+t.failed > 1 || t.quiet) {
		took := time.Since(t.began)
		sayf(t.a.out, "%s in %s (%.0f/s)", plural(t.total+t.failed, "message"), shortDuration(took), float64(t.total)/took.Seconds())
		for _, st := range slices.Sorted(mapKeys(t.counts)) {
			sayf(t.a.out, ", %d %s", t.counts[st], client.StatusName(st))
		}
		if t.failed > 0 {
			sayf(t.a.out, ", %d without an answer", t.failed)
		}
		say(t.a.out)
	}
	if err != nil {
		return err
	}
	return t.verdict()
}

// verdict tells what each status but PUT_OK means, and is an error where there is one.
func (t *tally) verdict() error {
	if t.total == t.counts[client.StatusOK] {
		return nil
	}
	for _, st := range slices.Sorted(mapKeys(t.counts)) {
		if st != client.StatusOK {
			what, next := statusMeaning(st)
			if t.group != nil && fewSlaves(st) {
				what, next = what+"; "+t.group.what, t.group.next
			}
			sayf(t.a.errOut, "tandemctl: %s: %s\n", client.StatusName(st), what)
			if t.reason != "" {
				sayf(t.a.errOut, "           the storage says: %s\n", t.reason)
			}
			t.a.advise(next)
		}
	}
	return errReported
}

// fewSlaves reports whether a status says that slaves were too few or too slow.
func fewSlaves(s client.Status) bool {
	switch s {
	case client.StatusFlushSlaveTimeout, client.StatusSlaveNotAvailable, client.StatusInSyncReplicasNotEnough:
		return true
	default:
		return false
	}
}

func (t *tally) tooFewSlaves() bool {
	return slices.ContainsFunc(slices.Collect(mapKeys(t.counts)), fewSlaves)
}

// group says that more slaves were asked for than there are.
type group struct{ what, next string }

// groupOf returns nil when the master knows as many slaves as were asked for, or cannot be asked; acks -1 is what the storage
// is set up for.
func (a *app) groupOf(ctx context.Context, c *client.Client, acks int32) *group {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	master, err := c.FindMaster(ctx)
	if err != nil {
		return nil
	}
	admin, err := c.Admin(master)
	if err != nil {
		return nil
	}
	st, err := admin.Status(ctx)
	if err != nil {
		return nil
	}
	known, by := int32(len(st.GetSlaves())), "--acks" //nolint:gosec // a handful
	if acks < 0 {
		acks, by = st.GetRequiredAcks(), "ha.required"
	}
	if known >= acks {
		return nil
	}
	g := &group{
		what: fmt.Sprintf("%s connected to the master so far, %s asks for %d", are(int(known), "slave"), by, acks),
		next: "`tandemctl status` shows which are there: slaves come by themselves within seconds after a start or a change of the master; else start as many, or ask for fewer with --acks",
	}
	return g
}

func mapKeys[V any](m map[client.Status]V) iter.Seq[client.Status] {
	return func(yield func(client.Status) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// statusMeaning says where the bytes are and what to do.
func statusMeaning(s client.Status) (what, next string) {
	switch s {
	case client.StatusFlushDiskTimeout:
		return "in the master's log, its flush was not confirmed in time", "the disk is slow or stuck: look at the storage's log and metrics"
	case client.StatusFlushSlaveTimeout:
		return "in the master's log, fewer slaves than asked for confirmed in time", "`tandemctl status` shows each slave's lag and what keeps it back"
	case client.StatusSlaveNotAvailable:
		return "in the master's log only, too few slaves are in sync", "`tandemctl status` shows which slave is missing and why"
	case client.StatusInSyncReplicasNotEnough:
		return "not stored, too few slaves are in sync (ha.refuseWithoutReplicas)", "bring slaves back: `tandemctl status` shows which is missing and why"
	case client.StatusDiskFull:
		return "not stored, the master's disk is full", "free space on the disk that holds its log"
	case client.StatusMessageIllegal:
		return "not stored, the message breaks a limit", "shorten or mend it as the reason says"
	case client.StatusNotMaster:
		return "not stored, the node is not an open master", "name all nodes with --addr so that the master is found; `tandemctl status` shows roles"
	default:
		return "a status that this tandemctl does not know: " + s.String(), "use a tandemctl of the storage's version"
	}
}
