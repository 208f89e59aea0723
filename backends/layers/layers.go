package layers

import (
	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/layers/breaker"
	"github.com/headgate-rls/headgate/backends/layers/coalesce"
	"github.com/headgate-rls/headgate/backends/layers/denycache"
	"github.com/headgate-rls/headgate/backends/layers/fallback"
	"github.com/headgate-rls/headgate/backends/layers/prefetch"
	"github.com/headgate-rls/headgate/internal/kit/background"
)

// An onion is a store while layers are put around it.
type onion struct {
	backends.Inside
	breaker  *breaker.Backend
	local    *fallback.Backend
	outages  outageLog
	declined background.LogLimit
}

// Around puts all layers around a store, and one around the memory that decides in an outage. That
// one settles with the store afterwards.
func Around(in backends.Inside) backends.Layered {
	share := prefetch.Config{Replicas: in.Replicas, Timeout: in.Timeout}
	if r, ok := in.Store.(backends.Registrar); ok {
		share.Registry = r.Registry()
	}
	var ahead *prefetch.Backend
	o := &onion{Inside: in, declined: background.LogLimit{PerSecond: 1},
		outages: outageLog{log: in.Log, name: in.Caps.Name, now: in.Options.Now}}
	all := backends.Layered{Backend: in.Next}
	for _, layer := range []struct { // the order, from the inside out
		name string
		wrap func(next backends.Backend) backends.Backend
	}{
		{"breaker", o.guard},
		{"coalesce", o.coalesce},
		{"prefetch", func(next backends.Backend) backends.Backend {
			ahead = prefetch.New(next, &o.Caps, share, o.Now)
			return ahead
		}},
		{"denycache", func(next backends.Backend) backends.Backend {
			return denycache.New(next, &o.Caps, o.Now)
		}},
	} {
		all.Backend = layer.wrap(all.Backend)
		all.Layers = append(all.Layers, all.Backend)
		all.Names = append(all.Names, layer.name)
	}
	o.local = fallback.New(in.Memory, all.Backend, fallback.Config{
		Replicas: o.Replicas, ServerClock: o.Caps.ServerClock, Timeout: o.Timeout,
		OnReconcile: o.reconciled,
	}, o.Instants)
	all.Local, all.Layers = o.local, append(all.Layers, o.local)
	all.Tasks = []backends.Task{{Name: "fallback", Run: o.local.Run}, {Name: "local_share", Run: ahead.Run}}
	return all
}

func (o *onion) guard(next backends.Backend) backends.Backend {
	conf := breaker.Config{Timeout: o.Timeout, Panics: o.Panics, OnChange: o.breakerChanged, OnDeclined: o.declines,
		OnPace: o.outages.paced, OnTick: o.outages.tick}
	if o.Caps.Atomicity == backends.PerPartition {
		conf.Failures = -1 // one of several nodes may be away: only the share of failures counts
	}
	o.breaker = breaker.New(next, conf, o.Now)
	return o.breaker
}

func (o *onion) breakerChanged(_, to breaker.State, why error) {
	o.outages.changed(to, why)
	if to == breaker.Closed {
		o.local.Signal()
	}
}

func (o *onion) declines(why error) {
	if ok, skipped := o.declined.Allow(); ok {
		o.Log.Error("backend answers with errors: failure policies decide the requests concerned, all others go on",
			"backend", o.Caps.Name, "error", why, "suppressed", skipped)
	}
}

func (o *onion) coalesce(next backends.Backend) backends.Backend {
	conf := coalesce.Config{InFlight: o.Caps.InFlight, MaxSlice: o.Caps.MaxSlice, Timeout: o.Timeout,
		Answers: o.breaker.Answers, Panics: o.Panics}
	if store, ok := o.Store.(backends.Partitioned); ok {
		conf.Servers = store.Servers()
	}
	return coalesce.New(next, conf)
}

func (o *onion) reconciled(r fallback.Result, err error) {
	o.Log.Info("charged local admissions to the backend", "keys", r.Keys, "units", r.Units,
		"without_room", r.Short, "ended", r.Ended, "left", r.Left, "error", err)
}
