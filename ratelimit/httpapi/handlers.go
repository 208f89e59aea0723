package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/spell"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

const (
	defaultPage = 100
	maxPage     = 1000
	// What rows of lists keep in memory until they are written, in bytes.
	keyBytes = 2 << 10
	rowBytes = 512
)

// A StatusAnswer is how a process is.
type StatusAnswer struct {
	Status  string        `json:"status"`
	Version string        `json:"version"`
	Parts   []partAnswer  `json:"parts"`
	Traffic trafficAnswer `json:"traffic"`
	// UnknownDomains are the first of those that calls had and no rules have.
	UnknownDomains []UnknownDomainAnswer `json:"unknown_domains"`
}

// A trafficAnswer is what this process answered in the last minute.
type trafficAnswer struct {
	AnswersPerSecond float64    `json:"answers_per_second"`
	RefusedPercent   float64    `json:"refused_percent"`
	ByPolicyPercent  float64    `json:"by_policy_percent"`
	LastCall         *time.Time `json:"last_call,omitempty"`
	// UnmatchedShapes are shapes of descriptors that no rule matched.
	UnmatchedShapes int `json:"unmatched_shapes"`
	// UnmatchedPercent is of the calls that meet no rule.
	UnmatchedPercent float64 `json:"unmatched_percent"`
}

func (h *Handlers) traffic() (a trafficAnswer) {
	rate := h.Fleet.Rate()
	percent := func(part float64) float64 { return math.Round(part*1000) / 10 }
	a.AnswersPerSecond = math.Round(rate.PerSecond*10) / 10
	a.RefusedPercent, a.ByPolicyPercent = percent(rate.Refused), percent(rate.ByPolicy)
	a.UnmatchedPercent = percent(rate.Unmatched)
	if !rate.Last.IsZero() {
		last := rate.Last.UTC()
		a.LastCall = &last
	}
	for _, s := range h.Service.Coverage().Shapes() {
		if s.Matched() == 0 {
			a.UnmatchedShapes++
		}
	}
	return a
}

type partAnswer struct {
	Name    string `json:"name"`
	Status  string `json:"status"`
	Problem string `json:"problem,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// rulesDetail returns how many rules are in force and, if they changed since the start, how long ago.
func (h *Handlers) rulesDetail() string {
	set := h.Service.Rules()
	text := spell.Count(len(set.Rules()), "rule") + " in " + spell.Count(len(set.Domains()), "domain")
	for _, r := range h.Watch.Reloads() {
		if r.Source == "rules" {
			return text + ", changed " + time.Since(r.At).Round(time.Second).String() + " ago"
		}
	}
	return text
}

// status says how the service is. The answer is a success whenever it can be given.
func (h *Handlers) status(w http.ResponseWriter, _ *http.Request, _ web.Params) error {
	answer := StatusAnswer{Status: "READY", Version: h.Version, Parts: []partAnswer{}, Traffic: h.traffic(),
		UnknownDomains: h.unknownDomains(maxNamed)}
	for _, p := range h.Ready.Parts() {
		part := partAnswer{Name: p.Name, Status: "OK", Problem: p.Problem, Detail: p.Detail}
		if p.Name == "rules" && p.Detail == "" {
			part.Detail = h.rulesDetail()
		}
		if p.Problem != "" {
			part.Status = "FAILING"
			if !p.Serving {
				answer.Status = "NOT_READY"
			}
		}
		answer.Parts = append(answer.Parts, part)
	}
	if h.Ready.Draining() {
		answer.Status = "DRAINING"
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

type listAnswer struct {
	Metrics []any  `json:"metrics"`
	Next    string `json:"next,omitempty"`    // if there may be more
	Problem string `json:"problem,omitempty"` // keys of a server are missing: it does not answer
}

// list answers with a page of what is counted under the keys of the store. One page is made at a time.
func (h *Handlers) list(w http.ResponseWriter, r *http.Request, p web.Params) error {
	n, err := p.Limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	if err := web.Keep(w, r, n*keyBytes); err != nil {
		return err
	}
	resume := web.Yield(r.Context())
	select {
	case h.listing <- struct{}{}:
		defer func() { <-h.listing }()
	case <-r.Context().Done():
		return web.Refuse(http.StatusServiceUnavailable, "keys are being listed for others; list them later")
	}
	resume()
	resume = h.yield(r.Context())
	keys, next, err := h.List(r.Context(), p["after"], n)
	resume()
	switch {
	case errors.Is(err, backends.ErrInvalid):
		return web.BadRequest("after is %q, which no page has given as next", web.Clip(p["after"]))
	case err != nil && next == "":
		return err
	}
	answer := listAnswer{Next: next}
	if err != nil {
		answer.Problem = "keys are missing: " + h.reason(err)
		h.Log.Error("keys of a server of the store cannot be listed", "error", err)
	}
	if answer.Metrics, err = h.page(r.Context(), keys); err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// page returns what is counted under keys, for each descriptor once.
func (h *Handlers) page(ctx context.Context, keys []limit.Key) ([]any, error) {
	list := []any{}
	var asked []descriptor
	var algorithms []string // of asked
	seen := map[string]bool{}
	rules := h.Service.Rules()
	for _, k := range keys {
		a, isRules := algorithmOf(k)
		if seen[k.Group] || !isRules {
			continue
		}
		seen[k.Group] = true
		domain, entries, matches, known := rules.Counted(k.Group)
		switch {
		case matches:
			asked = append(asked, descriptor{descriptors.Name(domain, entries), domain, entries})
			algorithms = append(algorithms, algorithmName(a))
		case known:
			list = append(list, unknownAnswer{h.shown(descriptors.Name(domain, entries)), algorithmName(a), "UNKNOWN"})
		default:
			list = append(list, unknownAnswer{h.shown(descriptors.Name(k.Group, nil)), algorithmName(a), "UNKNOWN"})
		}
	}
	usages, err := h.usage(ctx, asked)
	if err != nil {
		return nil, err
	}
	for i, u := range usages {
		name := h.shown(asked[i].name)
		if u.Err != nil {
			list = append(list, unknownAnswer{name, algorithms[i], "UNKNOWN"})
		} else if answer := answerOf(name, u.Limits); answer != nil {
			list = append(list, answer)
		}
	}
	return list, nil
}

// algorithmOf returns the algorithm of a counter of rules.
func algorithmOf(k limit.Key) (limit.Algorithm, bool) {
	for _, a := range limit.AllAlgorithms() {
		if k.Group != "" && k.Limit != "" && k.Limit[:1] == a.KeyLetter() && (len(k.Limit) == 1 || k.Limit[1] == ':' ||
			k.Limit[1] == '#') {
			return a, true
		}
	}
	return 0, false
}

// slice is how many descriptors the store is asked about at once.
const slice = 100

// usage asks what is counted for each descriptor, and logs what the store does not say beside others.
func (h *Handlers) usage(ctx context.Context, list []descriptor) (all []ratelimit.Usages, err error) {
	for some := range slices.Chunk(list, slice) {
		domains, entries := make([]string, len(some)), make([][]descriptors.Entry, len(some))
		for i := range some {
			domains[i], entries[i] = some[i].domain, some[i].entries
		}
		resume := h.yield(ctx)
		usages, err := h.Service.Usage(ctx, domains, entries)
		resume()
		if err != nil {
			return nil, err
		}
		for i := range usages {
			if err := usages[i].Err; err != nil {
				h.Log.Error("what is counted under a key is not known", "key", h.Service.LoggedKey(domains[i], entries[i]),
					"error", err)
			}
		}
		all = append(all, usages...)
	}
	return all, nil
}

// find returns the descriptor of a path, and what is counted for it. It is an error if nothing is.
func (h *Handlers) find(ctx context.Context, p web.Params) (d descriptor, usages []ratelimit.Usage, err error) {
	if d, err = h.keyNamed(ctx, p["key"]); err != nil {
		return d, nil, err
	}
	all, err := h.usage(ctx, []descriptor{d})
	switch {
	case err != nil:
		return d, nil, err
	case all[0].Err != nil:
		return d, nil, all[0].Err
	case len(all[0].Limits) == 0:
		return d, nil, web.Refuse(http.StatusNotFound, "no limit applies to %s", web.Clip(h.shown(d.name)))
	case answerOf(d.name, all[0].Limits) == nil:
		u := &all[0].Limits[0]
		return d, nil, web.Refuse(http.StatusNotFound, "nothing is counted under %s; the limit of the rule %s is %v",
			web.Clip(h.shown(d.name)), u.Rule, u.Limit)
	}
	return d, all[0].Limits, nil
}

func (h *Handlers) get(w http.ResponseWriter, r *http.Request, p web.Params) error {
	d, usages, err := h.find(r.Context(), p)
	if err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, answerOf(h.shown(d.name), usages))
	return nil
}

// reset forgets what is counted under a key, but for requests in flight.
func (h *Handlers) reset(w http.ResponseWriter, r *http.Request, p web.Params) error {
	if r.ContentLength != 0 {
		return web.BadRequest("a reset has no body")
	}
	d, usages, err := h.find(r.Context(), p)
	if err != nil {
		return err
	}
	if !counted(usages, func(l *limit.Limit) bool { return !l.Is(limit.Leased) }) {
		return web.Refuse(http.StatusConflict, "under %s only requests in flight are counted; they end by themselves",
			web.Clip(h.shown(d.name)))
	}
	// A client that hangs up must not leave open whether the key is reset.
	by, _ := r.Context().Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), by)
	defer cancel()
	defer h.yield(ctx)()
	err = h.Service.Reset(ctx, &ratelimit.Request{Domain: d.domain, InProcess: true,
		Descriptors: []ratelimit.Descriptor{{Entries: d.entries, HasHits: true}}})
	if err != nil {
		return resetError{err}
	}
	h.Log.Info("counters reset", "key", h.Service.LoggedKey(d.domain, d.entries), "rule", usages[0].Rule, "by",
		web.CallerOf(r.Context()), "request_id", web.RequestID(r))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}
