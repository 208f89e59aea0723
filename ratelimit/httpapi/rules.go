package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/ratelimit/fleet"
)

// A RulesAnswer is a page of the limits in force, in the order of the files.
type RulesAnswer struct {
	Rules   []RuleRow `json:"rules"`
	Next    string    `json:"next,omitempty"`
	Problem string    `json:"problem,omitempty"`
}

// A RuleRow is a limit in force, or a rule without one.
type RuleRow struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Path lists the descriptors that lead to the rule, the outermost first: "key" or "key_value".
	Path   []string `json:"path"`
	Name   string   `json:"name,omitempty"` // of the limit
	Limit  string   `json:"limit"`
	Policy string   `json:"policy,omitempty"` // the key of policies that take the place of the limit
	Shadow bool     `json:"shadow,omitempty"`
	Place  string   `json:"place,omitempty"`
	// Refused is how many requests the limit refused in the last 5 minutes, as far as their keys are kept, and
	// UsedPercent how full the fullest key was; absent if none was near the limit.
	Refused     int64   `json:"refused"`
	UsedPercent float64 `json:"used_percent,omitempty"`
}

// RuleRows returns the limits of a set.
func RuleRows(set *descriptors.Set) (list []RuleRow) {
	for _, r := range set.Rules() {
		row := RuleRow{Domain: r.Domain, Rule: r.Domain + "/" + r.Path, Path: r.Steps(), Limit: "no limit",
			Shadow: r.Shadow, Place: placeOf(r)}
		if r.Policy != nil {
			row.Policy = r.Policy.String()
		}
		if r.Unlimited {
			row.Limit = "unlimited"
		}
		if len(r.Limits) == 0 && r.Concurrency == nil {
			list = append(list, row)
		}
		for i := range r.Limits {
			l, one := &r.Limits[i], row
			if l.Name != "" {
				one.Rule, one.Name = one.Rule+":"+l.Name, l.Name
			}
			one.Limit, one.Shadow = descriptors.LimitText(l.Limit), r.Shadow || l.Shadow
			list = append(list, one)
		}
		if r.Concurrency != nil {
			row.Limit = descriptors.LimitText(r.Concurrency.Limit)
			list = append(list, row)
		}
	}
	return list
}

// rules answers with a page of the limits in force.
func (h *Handlers) rules(w http.ResponseWriter, r *http.Request, p web.Params) error {
	n, err := p.Limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	after := 0
	if text := p["after"]; text != "" {
		if after, err = strconv.Atoi(text); err != nil || after < 1 {
			return web.BadRequest("after is %q, which no page has given as next", web.Clip(text))
		}
	}
	if len(p["domain"]) > maxKey {
		return web.BadRequest("the domain has %d bytes, more than %d", len(p["domain"]), maxKey)
	}
	set := h.Service.Rules()
	if err := web.Keep(w, r, len(set.Rules())*rowBytes); err != nil { // of all of them, to find the page
		return err
	}
	list := RuleRows(set)
	if domain := p["domain"]; domain != "" {
		list = slices.DeleteFunc(list, func(row RuleRow) bool { return row.Domain != domain })
	}
	list = list[min(after, len(list)):]
	answer := RulesAnswer{Rules: []RuleRow{}}
	if len(list) > n {
		list, answer.Next = list[:n], strconv.Itoa(after+n)
	}
	refused, near := h.fleetTop(r.Context(), fleet.Refused, 5), h.fleetTop(r.Context(), fleet.Near, 5)
	_, _, answer.Problem = seen(&refused)
	for i := range list {
		for _, k := range refused.Keys {
			if k.Rule == list[i].Rule {
				list[i].Refused += k.Figure
			}
		}
		for _, k := range near.Keys {
			if k.Rule == list[i].Rule {
				list[i].UsedPercent = max(list[i].UsedPercent, float64(k.Figure)/10)
			}
		}
		answer.Rules = append(answer.Rules, list[i])
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// domainOf returns the domain of a key.
func domainOf(key string) string {
	domain, _, _ := strings.Cut(key, "|")
	return domain
}
