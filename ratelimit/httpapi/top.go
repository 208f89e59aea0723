package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/units"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
)

const (
	standardTop = 20
	maxTop      = 50
	peekEvery   = 5 * time.Second
)

// A TopAnswer is the keys that are refused most, or that are nearest to their limits, in all replicas that are seen.
type TopAnswer struct {
	By       string      `json:"by"`
	WindowMS int64       `json:"window_ms"`
	Exact    bool        `json:"exact"`
	Keys     []KeyAnswer `json:"keys"`
	Replicas []Replica   `json:"replicas"`
	Note     string      `json:"note,omitempty"`
	Problem  string      `json:"problem,omitempty"`
}

// A Replica is one whose figures are in an answer.
type Replica struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// A KeyAnswer is a limit and what it has counted under a key.
type KeyAnswer struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	Cut    bool   `json:"cut,omitempty"`
	State
	Refused     *int64  `json:"refused,omitempty"`      // in the window; by=refused
	AtMost      *int64  `json:"at_most,omitempty"`      // refusals, if they are not known exactly
	UsedPercent float64 `json:"used_percent,omitempty"` // at its largest in the window; by=near
	Minutes     []int64 `json:"minutes"`
}

// A State is what a limit has counted now; all are absent if that is not known.
type State struct {
	Used         *int64 `json:"used,omitempty"`
	Left         *int64 `json:"left,omitempty"`
	RetryAfterMS *int64 `json:"retry_after_ms,omitempty"` // absent, too, if no wait helps
}

func stateOf(u *ratelimit.Usage) (s State) {
	used, left, retry := max(u.Limit.Capacity()-u.Remaining, 0), max(u.Remaining, 0), milliseconds(u.Retry)
	s.Used, s.Left = &used, &left
	if u.Retry != limit.Never {
		s.RetryAfterMS = &retry
	}
	return s
}

// milliseconds rounds up: a caller who waits as long must not come too early.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// top answers with the keys that count most.
func (h *Handlers) top(w http.ResponseWriter, r *http.Request, p web.Params) error {
	n, err := p.Limit(standardTop, maxTop)
	if err != nil {
		return err
	}
	minutes, err := windowOf(p)
	if err != nil {
		return err
	}
	by, answer := fleet.Refused, TopAnswer{By: "refused", WindowMS: int64(minutes) * time.Minute.Milliseconds()}
	switch p["by"] {
	case "", "refused":
	case "near":
		by, answer.By = fleet.Near, "near"
	default:
		return web.BadRequest("by is %q, want refused or near", web.Clip(p["by"]))
	}
	t := h.fleetTop(r.Context(), by, minutes)
	t.Keys = t.Keys[:min(n, len(t.Keys))]
	answer.Exact, answer.Keys = t.Exact, []KeyAnswer{}
	answer.Replicas, answer.Note, answer.Problem = seen(&t)
	resume := h.yield(r.Context()) // perhaps for another request that asks the store
	states, err := h.peeks.of(r.Context(), h, fmt.Sprint(answer.By, minutes, n), t.Keys)
	resume()
	if err != nil {
		answer.Problem = joined(answer.Problem, "used and left are not known: "+h.reason(err))
	}
	for i := range t.Keys {
		answer.Keys = append(answer.Keys, h.keyAnswer(&t.Keys[i], by, states))
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// fleetTop asks the replicas, by the store.
func (h *Handlers) fleetTop(ctx context.Context, by fleet.By, minutes int) fleet.Top {
	defer h.yield(ctx)()
	return h.Fleet.Top(ctx, by, minutes)
}

// windowOf reads the parameter window: whole minutes, 5 without it.
func windowOf(p web.Params) (minutes int, err error) {
	text, ok := p["window"]
	if !ok {
		return 5, nil
	}
	d, err := units.ParseDuration(text)
	if err != nil || d < time.Minute || d > fleet.Minutes*time.Minute || d%time.Minute != 0 {
		return 0, web.BadRequest("window is %q, want whole minutes from 1m to %dm", web.Clip(text),
			fleet.Minutes)
	}
	return int(d / time.Minute), nil
}

// seen returns the replicas of a top, and what to say about those that are missing.
func seen(t *fleet.Top) (list []Replica, note, problem string) {
	for _, r := range t.Replicas {
		list = append(list, Replica(r))
	}
	switch {
	case t.Err != nil:
		problem = "this replica only: the store does not answer, or refuses"
	case t.Alone:
		note = "this replica only: replicas do not share this store"
	}
	return list, note, problem
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// reason says in words why the store cannot be asked.
func (h *Handlers) reason(err error) string {
	_, message := explain(err)
	return message
}

func (h *Handlers) keyAnswer(k *fleet.Key, by fleet.By, states map[id]peeked) KeyAnswer {
	a := KeyAnswer{Domain: domainOf(k.Name), Rule: k.Rule, Limit: k.Limit, Key: h.shown(k.Name), Cut: k.Cut,
		Minutes: k.Minutes}
	if s, ok := states[id{k.Rule, k.Name}]; ok {
		a.State, a.Limit = s.State, s.limit
	}
	if by == fleet.Near {
		a.UsedPercent = float64(k.Figure) / 10
		return a
	}
	a.Refused = &k.Figure
	if k.Error > 0 {
		most := k.Figure + k.Error
		a.AtMost = &most
	}
	return a
}

// An id is a limit and a key under it.
type id struct{ rule, key string }

// A peeked is what was counted under a key a moment ago, and the limit in force.
type peeked struct {
	State
	limit string
}

// A peeker asks what keys have left: all keys of a view at once, and those of one view every five seconds at most,
// however many look at it.
type peeker struct {
	mu    sync.Mutex
	views map[string]*peekedView
}

type peekedView struct {
	at     time.Time
	states map[id]peeked
	err    error
}

// maxViews bounds the views that are remembered.
const maxViews = 32

func (p *peeker) of(ctx context.Context, h *Handlers, view string, keys []fleet.Key) (map[id]peeked, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.views[view]; v != nil && time.Since(v.at) < peekEvery && (len(v.states) > 0 || v.err != nil) {
		return v.states, v.err
	}
	if len(p.views) >= maxViews || p.views == nil {
		p.views = map[string]*peekedView{}
	}
	v := &peekedView{at: time.Now()}
	v.states, v.err = h.peek(ctx, keys)
	if ctx.Err() == nil {
		p.views[view] = v
	}
	return v.states, v.err
}

// peek asks the store once what is counted under keys.
func (h *Handlers) peek(ctx context.Context, keys []fleet.Key) (map[id]peeked, error) {
	var list []descriptor
	asked := map[string]bool{}
	for i := range keys {
		name := keys[i].Name
		if asked[name] || keys[i].Cut {
			continue
		}
		asked[name] = true
		if domain, entries, err := parseName(name); err == nil {
			list = append(list, descriptor{name, domain, entries})
		}
	}
	states := map[id]peeked{}
	if len(list) == 0 {
		return states, nil
	}
	usages, err := h.usage(ctx, list)
	var call *ratelimit.Error
	if errors.As(err, &call) {
		return states, nil // there are no rules: nothing is counted
	}
	for i := range usages {
		for j := range usages[i].Limits {
			u := &usages[i].Limits[j]
			states[id{u.Rule, list[i].name}] = peeked{stateOf(u), descriptors.LimitText(u.Limit)}
		}
	}
	return states, err
}
