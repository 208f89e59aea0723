package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/ratelimit"
)

// maxKey bounds the keys that clients send, in bytes.
const maxKey = 4 << 10

// A descriptor is what a key stands for.
type descriptor struct {
	name    string // as descriptors.Name has it
	domain  string
	entries []descriptors.Entry
}

// keyOf reads the key of a path. What clients and proxies on the way take for a way through
// directories could reach another key than was meant, and is refused.
func keyOf(given string) (d descriptor, err error) {
	if len(given) > maxKey {
		return d, web.BadRequest("the key has %d bytes, more than %d", len(given), maxKey)
	}
	for segment := range strings.SplitSeq(given, "/") {
		if segment == "." || segment == ".." {
			return d, web.BadRequest("the key %s has %q between slashes, which paths of URLs cannot have",
				web.Clip(given), segment)
		}
	}
	if d.domain, d.entries, err = parseName(given); err != nil {
		return d, web.BadRequest("%s", web.Clip(err.Error()))
	}
	d.name = descriptors.Name(d.domain, d.entries)
	return d, nil
}

// ofPolicy returns the descriptor that has the policy with a key, as a rule makes it; one without a name if the key is
// no policy's. A domain has the key before a policy.
func (h *Handlers) ofPolicy(key string) (d descriptor, err error) {
	rules := h.Service.Rules()
	domain, _, _ := strings.Cut(key, "|")
	if _, known := slices.BinarySearch(rules.Domains(), domain); known {
		return d, nil
	}
	for _, r := range rules.Rules() {
		if r.Policy == nil {
			continue
		}
		list, ok := r.Policy.Entries(key)
		if !ok {
			continue
		}
		found := descriptor{domain: r.Domain}
		for _, e := range list {
			found.entries = append(found.entries, descriptors.Entry{Key: e[0], Value: e[1]})
		}
		found.name = descriptors.Name(found.domain, found.entries)
		if d.name != "" && d.name != found.name {
			return descriptor{}, web.Refuse(http.StatusConflict, "the policy %s is of several keys, such as %s and %s: name one",
				web.Clip(key), web.Clip(d.name), web.Clip(found.name))
		}
		d = found
	}
	return d, nil
}

// figures are what one limit has counted.
type figures struct {
	Algorithm          string         `json:"algorithm"`
	CurrentTokens      int64          `json:"currentTokens"`
	Capacity           int64          `json:"capacity"`
	WindowRequestCount int64          `json:"windowRequestCount"`
	WindowSeconds      float64        `json:"windowSeconds"`
	Status             string         `json:"status"`
	Rule               string         `json:"rule"`
	InForce            policies.Words `json:"inForce"` // the limit in the words of rules
}

// usageAnswer is what is counted under a key: the figures of the limit with the least left, and
// those of each limit if there are several.
type usageAnswer struct {
	Key string `json:"key"`
	figures
	Limits []figures `json:"limits,omitempty"`
}

// unknownAnswer is a key in the store that no rule says anything about.
type unknownAnswer struct {
	Key       string `json:"key"`
	Algorithm string `json:"algorithm"`
	Status    string `json:"status"`
}

func figuresOf(u *ratelimit.Usage) figures {
	f := figures{
		Algorithm: algorithmName(u.Limit.Algorithm()), CurrentTokens: u.Remaining, Capacity: u.Limit.Capacity(),
		WindowRequestCount: max(u.Limit.Capacity()-u.Remaining, 0), WindowSeconds: u.Limit.Window().Seconds(),
		Status: "OK", Rule: u.Rule, InForce: policies.WordsOf(u.Limit.Spec()),
	}
	if u.Limited {
		f.Status = "LIMITED"
	}
	return f
}

// algorithmName is the older word of policies for an algorithm; they have none for requests in flight.
func algorithmName(a limit.Algorithm) string {
	if name := policies.TypeOf(a); name != "" {
		return name
	}
	return strings.ToUpper(a.String())
}

// answerOf returns what is counted; nil if nothing is.
func answerOf(name string, usages []ratelimit.Usage) *usageAnswer {
	var least *ratelimit.Usage
	a := &usageAnswer{Key: name}
	for i := range usages {
		u := &usages[i]
		if least == nil || u.Limited && !least.Limited || u.Limited == least.Limited && u.Remaining < least.Remaining {
			least = u
		}
		a.Limits = append(a.Limits, figuresOf(u))
	}
	if !counted(usages, func(*limit.Limit) bool { return true }) {
		return nil
	}
	a.figures = figuresOf(least)
	if len(a.Limits) == 1 {
		a.Limits = nil
	}
	return a
}

// counted reports whether a limit for which is holds has counted something.
func counted(usages []ratelimit.Usage, is func(*limit.Limit) bool) bool {
	return slices.ContainsFunc(usages, func(u ratelimit.Usage) bool { return is(u.Limit) && u.Counted() })
}
