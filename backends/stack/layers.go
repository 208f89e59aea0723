package stack

import (
	"log/slog"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/breaker"
	"github.com/headgate-rls/headgate/backends/layers/coalesce"
	"github.com/headgate-rls/headgate/backends/layers/denycache"
	"github.com/headgate-rls/headgate/backends/layers/fallback"
	"github.com/headgate-rls/headgate/backends/layers/observe"
	"github.com/headgate-rls/headgate/backends/layers/prefetch"
	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/limit"
)

// A layer is one of those around a store. wrap returns it around next.
type layer struct {
	name string
	wrap func(next backends.Backend) backends.Backend
}

// An onion is a store with its layers.
type onion struct {
	caps backends.Caps
	opt  Options
	now  func() limit.Instant

	parts   []backends.Backend // the store and its layers, from the inside out
	names   []string           // of the layers
	breaker *breaker.Backend
	memory  *memory.Backend   // decides in an outage
	local   *fallback.Backend // around it; nil where the store is in this process
}

// layers is the order of layers, from the inside out. A store in this process
// cannot be away and has nothing to combine: it has the first one only.
func (o *onion) layers() []layer {
	all := []layer{
		{"observe", o.observe},
		{"breaker", o.guard},
		{"coalesce", o.coalesce},
		{"prefetch", func(next backends.Backend) backends.Backend {
			return prefetch.New(next, &o.caps, prefetch.Config{}, time.Now)
		}},
		{"denycache", func(next backends.Backend) backends.Backend {
			return denycache.New(next, &o.caps, time.Now)
		}},
	}
	if o.caps.Local {
		return all[:1]
	}
	return all
}

// wrap returns store with all layers around it.
func (o *onion) wrap(store backends.Backend) backends.Backend {
	o.parts = append(o.parts, store)
	outermost := store
	for _, l := range o.layers() {
		outermost = l.wrap(outermost)
		o.parts = append(o.parts, outermost)
		o.names = append(o.names, l.name)
	}
	return outermost
}

func (o *onion) observe(next backends.Backend) backends.Backend {
	return observe.New(next, o.opt.Recorder(o.caps.Name), time.Now)
}

func (o *onion) guard(next backends.Backend) backends.Backend {
	conf := breaker.Config{Timeout: o.opt.Timeout, Panics: o.opt.Panics, OnChange: o.breakerChanged}
	if o.caps.Atomicity == backends.PerPartition {
		conf.Failures = -1 // of several nodes one may be away: only a share of failures tells
	}
	o.breaker = breaker.New(next, conf, time.Now)
	return o.breaker
}

func (o *onion) breakerChanged(from, to breaker.State, why error) {
	switch to {
	case breaker.Open:
		if from == breaker.Closed {
			o.opt.Log.Error("circuit breaker opened: backend failing, failure policies decide", "backend", o.caps.Name, "error", why)
		}
	case breaker.Closed:
		o.opt.Log.Info("circuit breaker closed: backend answers again", "backend", o.caps.Name)
		o.local.Signal()
	}
}

func (o *onion) coalesce(next backends.Backend) backends.Backend {
	conf := coalesce.Config{InFlight: o.caps.InFlight, MaxSlice: o.caps.MaxSlice, Timeout: o.opt.Timeout, Answers: o.breaker.Answers, Panics: o.opt.Panics}
	if store, ok := o.parts[0].(backends.Partitioned); ok {
		conf.Servers = store.Servers()
	}
	return coalesce.New(next, conf)
}

// fallback returns what decides in an outage of primary: a memory of this
// process. It settles with primary afterwards, unless that is in this process
// too and so has no outages.
func (o *onion) fallback(primary backends.Backend) backends.Backend {
	o.memory = memory.New(memory.Config{Log: o.opt.Log})
	if o.caps.Local {
		return o.memory
	}
	o.local = fallback.New(o.memory, primary, fallback.Config{
		Replicas: o.opt.Replicas, ServerClock: o.caps.ServerClock, Timeout: o.opt.Timeout,
		OnReconcile: func(r fallback.Result, err error) { logReconciled(o.opt.Log, r, err) },
	}, o.now)
	return o.local
}

func logReconciled(log *slog.Logger, r fallback.Result, err error) {
	log.Info("charged local admissions to the backend", "keys", r.Keys, "units", r.Units,
		"without_room", r.Short, "ended", r.Ended, "left", r.Left, "error", err)
}
