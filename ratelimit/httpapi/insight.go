package httpapi

import (
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
)

// A CoverageAnswer is which shapes of descriptors rules match, in this process.
type CoverageAnswer struct {
	Shapes []ShapeAnswer `json:"shapes"`
}

// A ShapeAnswer is what a process has seen of descriptors with the same keys in a domain.
type ShapeAnswer struct {
	Domain    string    `json:"domain"`
	Entries   []string  `json:"entries"` // keys; none: all shapes of the domain that have no room
	Matched   int64     `json:"matched"`
	Unmatched int64     `json:"unmatched"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Example   string    `json:"example,omitempty"`
	Why       string    `json:"why,omitempty"` // no rule in force matches the example
}

func (h *Handlers) coverage(w http.ResponseWriter, r *http.Request, _ web.Params) error {
	answer := CoverageAnswer{Shapes: []ShapeAnswer{}}
	rules := h.Service.Rules()
	shapes := h.Service.Coverage().Shapes()
	if err := web.Keep(w, r, len(shapes)*rowBytes); err != nil {
		return err
	}
	for _, s := range shapes {
		a := ShapeAnswer{Domain: s.Domain, Entries: s.Keys, Matched: s.Matched(), Unmatched: s.Missed.Value(),
			First: time.UnixMicro(s.First).UTC(), Last: s.Last().UTC(), Example: h.shown(s.Example)}
		if a.Entries == nil {
			a.Entries = []string{}
		}
		if a.Unmatched > 0 && s.Example != "" {
			if domain, entries, err := parseName(s.Example); err == nil {
				a.Why = rules.WhyNoMatch(domain, entries)
			}
		}
		answer.Shapes = append(answer.Shapes, a)
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// A ReloadsAnswer is the last changes of rules and policies in this process, the newest first.
type ReloadsAnswer struct {
	Reloads []ReloadAnswer `json:"reloads"`
}

// A ReloadAnswer is a change of rules or policies.
type ReloadAnswer struct {
	At      time.Time `json:"at"`
	Source  string    `json:"source"`
	Changes []string  `json:"changes"`
}

func (h *Handlers) reloads(w http.ResponseWriter, _ *http.Request, _ web.Params) error {
	answer := ReloadsAnswer{Reloads: []ReloadAnswer{}}
	for _, r := range h.Watch.Reloads() {
		answer.Reloads = append(answer.Reloads, ReloadAnswer{r.At.UTC(), r.Source, r.Changes})
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}
