package register

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Tables are the node's own.
type Tables interface {
	Snapshot(k entry.Kind) *table.Table
}

// Role says whether the node leads.
type Role interface {
	// Reign returns a channel that is closed when the node leads no more, or an error where it does not.
	Reign() (epoch int64, over <-chan struct{}, err error)
	// Reigns grows each time the node begins to lead.
	Reigns() *watermark.Mark
}

// Options of a Registrar. Zero times get the defaults that are named.
type Options struct {
	NameServers              []string      // host:port
	Cluster, BrokerName      string        // those of the slaves
	BrokerAddr, HAServerAddr string        // as slaves reach this service and the storage's raw port
	Interval                 time.Duration // between two registrations (30 s)
	Timeout                  time.Duration // of one answer (6 s)
	MaxFrame                 int           // largest registration, bytes: with more topics only the two that are always there
	// MinBackoff and MaxBackoff bound the pause after a failure (1 s, 30 s).
	MinBackoff, MaxBackoff time.Duration
	Dial                   remoting.Dial
	Log                    *slog.Logger
	Meter                  metric.Meter
}

// State is how the registration with one name server goes.
type State struct {
	NameServer              string
	Registered              bool
	LastSuccess             time.Time
	LastError               error // nil: none since the last success
	Registrations, Failures int64
}

// Registrar registers while the node leads.
type Registrar struct {
	o      Options
	tables Tables
	role   Role

	mu     sync.Mutex // guards states
	states map[string]*State
}

// New makes a registrar.
func New(o Options, t Tables, r Role) *Registrar {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Interval, 30*time.Second)
	set(&o.Timeout, 6*time.Second)
	set(&o.MinBackoff, time.Second)
	set(&o.MaxBackoff, 30*time.Second)
	if o.MaxFrame == 0 {
		o.MaxFrame = frame.DefaultMaxFrame
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	out := &Registrar{o: o, tables: t, role: r, states: map[string]*State{}}
	for _, ns := range o.NameServers {
		out.states[ns] = &State{NameServer: ns}
	}
	out.instrument(o.Meter)
	return out
}

// Run registers whenever the node leads, until ctx ends; it returns nil.
func (r *Registrar) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		seen := r.role.Reigns().Load()
		if _, over, err := r.role.Reign(); err == nil {
			r.reign(ctx, over)
			continue
		}
		if err := r.role.Reigns().Wait(ctx, seen+1); err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
	return nil
}

// reign is registered with all name servers until over is closed or ctx ends.
func (r *Registrar) reign(ctx context.Context, over <-chan struct{}) {
	rctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for _, ns := range r.o.NameServers {
		all.Go(func() { r.keep(rctx, ns) })
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
	cancel()
	all.Wait()
}

// keep is registered with one name server until ctx ends.
func (r *Registrar) keep(ctx context.Context, ns string) {
	pause := r.o.MinBackoff
	for ctx.Err() == nil {
		registered, err := r.session(ctx, ns)
		if ctx.Err() != nil {
			return
		}
		r.failed(ctx, ns, err)
		if registered {
			pause = r.o.MinBackoff
		}
		t := time.NewTimer(pause/2 + rand.N(pause/2+1)) //nolint:gosec // spread, not secret
		pause = min(2*pause, r.o.MaxBackoff)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// session registers over one connection until it is lost or ctx ends; then it takes the registration back.
func (r *Registrar) session(ctx context.Context, ns string) (registered bool, err error) {
	dctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	conn, err := remoting.Connect(dctx, r.o.Dial, ns, maxAnswer)
	cancel()
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // nothing is on its way
	for {
		if err := r.register(ctx, conn); err != nil {
			return registered, err
		}
		registered = true
		r.succeeded(ctx, ns)
		err := conn.Idle(ctx, r.o.Interval)
		if ctx.Err() != nil {
			r.unregister(ctx, conn, ns)
		}
		if err != nil {
			return registered, err
		}
	}
}

// headerRoom is kept for the header of a registration.
const headerRoom = 4 << 10

// maxAnswer bounds the answers of a name server, which have next to no body.
const maxAnswer = 1 << 20

// register sends one 103.
func (r *Registrar) register(ctx context.Context, conn *remoting.Conn) error {
	topics := r.tables.Snapshot(entry.Topics)
	fields, body := Registration(r.o.Cluster, r.o.BrokerName, r.o.BrokerAddr, r.o.HAServerAddr, topics)
	if len(body) > r.o.MaxFrame-headerRoom { // the name server would close the connection, and the slaves would not find this node
		r.o.Log.WarnContext(ctx, "too many topics for one registration: clients get no routes", slog.Int("topics", topics.Len()),
			slog.String("remedy", "raise remoting.maxFrame, and com.rocketmq.remoting.frameMaxLength on the name servers"))
		fields, body = Registration(r.o.Cluster, r.o.BrokerName, r.o.BrokerAddr, r.o.HAServerAddr, table.New(entry.Topics))
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	_, _, err := conn.Call(ctx, remoting.RegisterBroker, fields, body)
	return err
}

// unregister sends a 104 after the end of ctx. Where it fails, the end of the connection says the same.
func (r *Registrar) unregister(ctx context.Context, conn *remoting.Conn, ns string) {
	r.left(ns)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(r.o.Timeout, time.Second))
	defer cancel()
	fields := identity(r.o.Cluster, r.o.BrokerName, r.o.BrokerAddr)
	if _, _, err := conn.Call(ctx, remoting.UnregisterBroker, fields, nil); err != nil {
		r.o.Log.DebugContext(ctx, "a name server did not take the registration back", slog.String("name_server", ns), slog.Any("error", err))
	}
}

func (r *Registrar) succeeded(ctx context.Context, ns string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.states[ns]
	if !st.Registered {
		r.o.Log.InfoContext(ctx, "registered", slog.String("name_server", ns), slog.String("broker_addr", r.o.BrokerAddr))
	}
	st.Registered, st.LastError, st.LastSuccess = true, nil, time.Now()
	st.Registrations++
}

func (r *Registrar) failed(ctx context.Context, ns string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.states[ns]
	if st.Registered || st.LastError == nil || errdefs.ReasonOf(st.LastError) != errdefs.ReasonOf(err) {
		r.o.Log.WarnContext(ctx, "not registered with a name server", slog.String("name_server", ns), slog.Any("error", err))
	}
	st.Registered, st.LastError = false, err
	st.Failures++
}

func (r *Registrar) left(ns string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[ns].Registered = false
}

// States returns how the registrations go, in the order of the options.
func (r *Registrar) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []State
	for _, ns := range r.o.NameServers {
		out = append(out, *r.states[ns])
	}
	return out
}

// identity are the fields that name this broker.
func identity(cluster, name, addr string) map[string]string {
	return map[string]string{"brokerName": name, "brokerAddr": addr, "clusterName": cluster, "brokerId": "0"}
}

// with returns the fields and more.
func with(fields, more map[string]string) map[string]string {
	maps.Copy(fields, more)
	return fields
}
