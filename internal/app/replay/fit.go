package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// fit finds, for each key of the report, the smallest limit that would not have refused it while all other limits stay
// as in the new rules. One pass with a limit that is far too large measures what the key needs. A second pass verifies
// it. Keys whose requests have no other limit do not affect others, so they share two passes. Each other key takes two
// of its own.
func (r *run) fit() error {
	if len(r.report.Keys) == 0 {
		return nil
	}
	figures := limitsOf(r.Old)
	need := map[limit.Key]*probe{}
	for _, k := range r.report.Keys {
		if before := figures[k.Rule]; before != nil {
			k.LimitOld = before.Capacity()
		}
		k.LimitNew, k.Figure = k.limit.Capacity(), "limit"
		if k.limit.Is(limit.Refilled) {
			k.Figure = "burst"
		}
		if p := newProbe(k.limit); p != nil {
			need[k.counter] = p
		}
	}
	if err := r.decideWith("measure", need); err != nil {
		return err
	}
	check := map[limit.Key]*probe{}
	for i, k := range r.report.Keys {
		switch p := need[k.counter]; {
		case p == nil:
		case p.beside && len(need) > 1:
			if err := r.fitAlone(i, k); err != nil {
				return err
			}
		default:
			if fits := k.measured(p); fits != nil {
				check[k.counter] = fits
			}
		}
	}
	return r.verify("verify", check)
}

// fitAlone is fit for one key.
func (r *run) fitAlone(i int, k *KeyRow) error {
	of := fmt.Sprintf("key %d of %d", i+1, len(r.report.Keys))
	p := newProbe(k.limit)
	if err := r.decideWith("measure "+of, map[limit.Key]*probe{k.counter: p}); err != nil {
		return err
	}
	if fits := k.measured(p); fits != nil {
		return r.verify("verify "+of, map[limit.Key]*probe{k.counter: fits})
	}
	return nil
}

// measured records what a probe saw, and returns a probe with the limit that the key needs; nil if no limit is enough.
func (k *KeyRow) measured(p *probe) *probe {
	k.Peak, k.used = p.peak, p.seen
	fits, err := withFigure(k.limit, p.need)
	if err != nil || p.refused {
		return nil
	}
	return &probe{limit: fits}
}

// verify decides all requests with the limits in check, and reports those that refuse nothing.
func (r *run) verify(pass string, check map[limit.Key]*probe) error {
	if len(check) == 0 {
		return nil
	}
	if err := r.decideWith(pass, check); err != nil {
		return err
	}
	for _, k := range r.report.Keys {
		if p := check[k.counter]; p != nil && !p.refused {
			k.WouldFitWith = new(p.limit.Capacity())
		}
	}
	return nil
}

// decideWith decides all requests by the new rules, but with other limits for some keys.
func (r *run) decideWith(pass string, probes map[limit.Key]*probe) error {
	w, err := virtual.New(r.New, virtual.Options{MaxKeys: r.MaxKeys, Store: func(b backends.Backend) backends.Backend {
		return &probing{b, probes}
	}})
	if err != nil {
		return err
	}
	defer w.Close()
	r.held, r.holds, r.spent, r.costs = 0, 0, 0, 0
	var resp ratelimit.Response
	_, err = r.pass(pass, func(l *line) error {
		if l.request == nil {
			return nil
		}
		r.one(w, l, &resp)
		if resp.Err == nil {
			r.learn(l)
		}
		return nil
	})
	return err
}

// A probe is a limit in the place of that of the rules, for one key, and what it sees.
type probe struct {
	limit   *limit.Limit
	need    int64 // the largest figure that was needed
	refused bool
	beside  bool // requests of the key also have other limits

	peak   int64         // most units that were asked for in a window
	window limit.Instant // its length
	number limit.Instant // of the present window
	units  int64         // in it
	seen   series        // what was in use
}

// newProbe returns a probe that measures; nil if no limit is large enough.
func newProbe(l *limit.Limit) *probe {
	wide := widest(l)
	if wide == nil {
		return nil
	}
	return &probe{limit: wide, seen: series{peaks: true}, window: limit.Instant(l.Window().Microseconds())}
}

// probing is a store that decides some keys by other limits.
type probing struct {
	backends.Backend
	probes map[limit.Key]*probe
}

func (p *probing) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	for i := range reqs {
		for j := range reqs[i].Ops {
			if probe := p.probes[reqs[i].Ops[j].Key]; probe != nil {
				reqs[i].Ops[j].Limit = probe.limit
			}
		}
	}
	p.Backend.Take(ctx, reqs, out)
	for i := range reqs {
		for j := range reqs[i].Ops {
			if probe := p.probes[reqs[i].Ops[j].Key]; probe != nil && out[i].Err == nil {
				probe.beside = probe.beside || len(reqs[i].Ops) > 1
				probe.see(&reqs[i].Ops[j], &out[i], &out[i].Outcomes[j])
			}
		}
	}
}

// see notes what an op needs to be admitted.
func (p *probe) see(op *limit.Op, v *limit.Verdict, out *limit.Outcome) {
	if op.Cost < 0 || op.Alternative() && !out.Chosen { // of the others one that comes first had room
		return
	}
	p.refused = p.refused || !out.Admitted
	used, cost := p.limit.Capacity()-out.Remaining, max(op.Cost, 1)
	if p.limit.Is(limit.Leased) {
		cost = 1
	}
	needed := used
	if recorded := v.Admitted || op.ChargesEach(); !recorded || op.Cost == 0 {
		needed += cost
	}
	p.need = max(p.need, needed)
	p.seen.add(v.At, used)
	if p.window == 0 {
		return
	}
	if n := v.At / p.window; n != p.number {
		p.number, p.units = n, 0
	}
	p.units += op.Cost
	if p.limit.Is(limit.Leased) {
		p.units = used
	}
	p.peak = max(p.peak, p.units)
}

// withFigure returns l with another capacity, the number that says whether a key fits: what a token bucket holds, else
// the units of a window, or requests in flight.
func withFigure(l *limit.Limit, n int64) (*limit.Limit, error) {
	s := l.Spec()
	s.Overflow, s.MaxDebt = limit.Refuse, 0
	if l.Is(limit.Refilled) {
		s.Burst = n
	} else {
		s.Max = n
	}
	other, err := limit.New(s)
	if err == nil && l.Is(limit.Refilled) {
		num, den := l.Interval()
		if n, d := other.Interval(); n != num || d != den {
			return nil, errors.New("no such limit")
		}
	}
	return other, err
}

// mostLogged bounds the units of a log in memory.
const mostLogged = 1 << 20

// widest returns l with the largest figure that the memory store accepts; nil if l already has it.
func widest(l *limit.Limit) *limit.Limit {
	most := l.Algorithm().MaxUnits()
	if l.Is(limit.Logged) {
		most = mostLogged
	}
	for n := most; n > l.Capacity(); n /= 2 {
		if wide, err := withFigure(l, n); err == nil {
			return wide
		}
	}
	return nil
}

// limitsOf returns the limits of rules by their names.
func limitsOf(set *descriptors.Set) map[string]*limit.Limit {
	all := map[string]*limit.Limit{}
	if set == nil {
		return all
	}
	for _, r := range set.Rules() {
		name := r.Domain + "/" + r.Path
		for _, l := range r.Limits {
			if l.Name != "" {
				all[name+":"+l.Name] = l.Limit
			} else {
				all[name] = l.Limit
			}
		}
		if r.Concurrency != nil {
			all[name] = r.Concurrency.Limit
		}
	}
	return all
}
