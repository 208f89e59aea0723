package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Admin is the admin API of a running service.
type Admin struct{ Slots }

// A Shape is what a process has seen of descriptors with the same keys in a domain.
type Shape struct {
	Domain    string    `json:"domain"`
	Entries   []string  `json:"entries"`
	Matched   int64     `json:"matched"`
	Unmatched int64     `json:"unmatched"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Example   string    `json:"example,omitempty"`
	Why       string    `json:"why,omitempty"`
}

// Coverage returns which shapes of descriptors rules match.
func (a *Admin) Coverage(ctx context.Context) ([]Shape, error) {
	var answer struct {
		Shapes []Shape `json:"shapes"`
	}
	err := a.Call(ctx, http.MethodGet, "/admin/coverage", nil, &answer)
	return answer.Shapes, err
}

// A Reload is a change of rules or policies.
type Reload struct {
	At      time.Time `json:"at"`
	Source  string    `json:"source"`
	Changes []string  `json:"changes"`
}

// Reloads returns the last changes, the newest first.
func (a *Admin) Reloads(ctx context.Context) ([]Reload, error) {
	var answer struct {
		Reloads []Reload `json:"reloads"`
	}
	err := a.Call(ctx, http.MethodGet, "/admin/reloads", nil, &answer)
	return answer.Reloads, err
}

// A State is what a limit has counted; its fields are nil if that is not known.
type State struct {
	Used         *int64 `json:"used,omitempty"`
	Left         *int64 `json:"left,omitempty"`
	RetryAfterMS *int64 `json:"retry_after_ms,omitempty"` // nil, too, if no wait helps
}

// A Key is a limit and what it has counted under a key.
type Key struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	Cut    bool   `json:"cut,omitempty"` // Key is only the beginning
	State
	Refused     *int64  `json:"refused,omitempty"` // at least
	AtMost      *int64  `json:"at_most,omitempty"`
	UsedPercent float64 `json:"used_percent,omitempty"`
	Minutes     []int64 `json:"minutes"`
}

// A Replica is one whose figures are in an answer.
type Replica struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// A Top is the keys that are refused most, or that are nearest to their limits.
type Top struct {
	By       string    `json:"by"`
	WindowMS int64     `json:"window_ms"`
	Exact    bool      `json:"exact"`
	Keys     []Key     `json:"keys"`
	Replicas []Replica `json:"replicas"`
	Note     string    `json:"note,omitempty"`
	Problem  string    `json:"problem,omitempty"`
}

// Top returns the keys that count most in a window, such as 5m, by "refused" or "near".
func (a *Admin) Top(ctx context.Context, by, window string, n int) (t Top, err error) {
	query := url.Values{"by": {by}, "window": {window}, "limit": {strconv.Itoa(n)}}
	err = a.Call(ctx, http.MethodGet, "/admin/top?"+query.Encode(), nil, &t)
	return t, err
}

// A LimitState is a limit that applies to a descriptor.
type LimitState struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	Limit  string `json:"limit"`
	Key    string `json:"key"`
	State
	Refused int64 `json:"refused"`
	Passes  bool  `json:"passes"`
	Shadow  bool  `json:"shadow,omitempty"`
}

// A RefusedRequest is a request that was refused.
type RefusedRequest struct {
	At           time.Time `json:"at"`
	Domain       string    `json:"domain"`
	Rule         string    `json:"rule"`
	Limit        string    `json:"limit"`
	Key          string    `json:"key"`
	Cut          bool      `json:"cut,omitempty"`
	Cause        string    `json:"cause"`
	Tier         string    `json:"tier,omitempty"`
	RetryAfterMS *int64    `json:"retry_after_ms,omitempty"`
	RequestID    string    `json:"request_id,omitempty"`
}

// A RulePlace is a rule, and where it is.
type RulePlace struct {
	Rule  string `json:"rule"`
	Place string `json:"place"`
}

// An Explanation says what would become of a request with one descriptor.
type Explanation struct {
	Key    string      `json:"key"`
	Domain string      `json:"domain"`
	Rule   string      `json:"rule,omitempty"`
	Place  string      `json:"place,omitempty"`
	Why    string      `json:"why,omitempty"`
	Nearly []RulePlace `json:"nearly,omitempty"`
	Policy *struct {
		InForce  string   `json:"in_force,omitempty"`
		LookedUp []string `json:"looked_up"`
	} `json:"policy,omitempty"`
	Limits       []LimitState     `json:"limits"`
	Passes       *bool            `json:"passes,omitempty"`
	OnStoreError string           `json:"on_store_error,omitempty"`
	Refusals     []RefusedRequest `json:"refusals,omitempty"`
	Replicas     []Replica        `json:"replicas,omitempty"`
	Note         string           `json:"note,omitempty"`
	Problem      string           `json:"problem,omitempty"`
}

// Explain asks by domain and descriptor, key, or request_id.
func (a *Admin) Explain(ctx context.Context, by url.Values) (e Explanation, err error) {
	err = a.Call(ctx, http.MethodGet, "/admin/explain?"+by.Encode(), nil, &e)
	return e, err
}

// A Rule is a limit in force.
type Rule struct {
	Domain      string   `json:"domain"`
	Rule        string   `json:"rule"`
	Path        []string `json:"path"`
	Name        string   `json:"name,omitempty"`
	Limit       string   `json:"limit"`
	Policy      string   `json:"policy,omitempty"`
	Shadow      bool     `json:"shadow,omitempty"`
	Place       string   `json:"place,omitempty"`
	Refused     int64    `json:"refused"`
	UsedPercent float64  `json:"used_percent,omitempty"`
}

// Rules returns all limits in force, of a domain unless it is empty.
func (a *Admin) Rules(ctx context.Context, domain string) (all []Rule, err error) {
	query := url.Values{"limit": {"1000"}}
	if domain != "" {
		query.Set("domain", domain)
	}
	for {
		var page struct {
			Rules []Rule `json:"rules"`
			Next  string `json:"next"`
		}
		if err := a.Call(ctx, http.MethodGet, "/admin/rules?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Rules...); page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// A Status is how a service is.
type Status struct {
	Status  string `json:"status"`
	Version string `json:"version"`
	Parts   []struct {
		Name    string `json:"name"`
		Status  string `json:"status"`
		Problem string `json:"problem,omitempty"`
		Detail  string `json:"detail,omitempty"`
	} `json:"parts"`
	Traffic struct {
		AnswersPerSecond float64    `json:"answers_per_second"`
		RefusedPercent   float64    `json:"refused_percent"`
		ByPolicyPercent  float64    `json:"by_policy_percent"`
		LastCall         *time.Time `json:"last_call,omitempty"`
		UnmatchedShapes  int        `json:"unmatched_shapes"`
	} `json:"traffic"`
}

// Status returns how the service is.
func (a *Admin) Status(ctx context.Context) (s Status, err error) {
	err = a.Call(ctx, http.MethodGet, "/admin/status", nil, &s)
	return s, err
}
