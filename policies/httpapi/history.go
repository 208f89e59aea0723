package httpapi

import (
	"net/http"
	"strconv"

	"github.com/headgate-rls/headgate/internal/web"
	"github.com/headgate-rls/headgate/policies"
)

// maxNumber is the largest number of an entry: every client of JSON knows it exactly.
const maxNumber = 1<<53 - 1

type historyAnswer struct {
	Changes []changeAnswer `json:"changes"`
	Next    int64          `json:"next,omitempty"` // if there may be more
}

// changeAnswer is an entry of the history as clients see it.
type changeAnswer struct {
	Number     int64           `json:"number"`
	Generation int64           `json:"generation"`
	PolicyKey  string          `json:"policyKey"`
	ChangedBy  string          `json:"changedBy"`
	ChangedAt  string          `json:"changedAt"`
	Before     *revisionAnswer `json:"before"` // null: there was no policy
	After      *revisionAnswer `json:"after"`
}

type revisionAnswer struct {
	Type          string          `json:"type"`
	Capacity      int64           `json:"capacity"`
	RefillRate    policies.Amount `json:"refillRate"`
	WindowSeconds policies.Amount `json:"windowSeconds"`
	Version       int64           `json:"version"`
}

func revisionOf(r *policies.Revision) *revisionAnswer {
	if r == nil {
		return nil
	}
	return &revisionAnswer{policies.TypeOf(r.Algorithm), r.Capacity, r.Refill, r.Window, r.Version}
}

// history answers with a page of changes, the newest first. The key of a policy is in the query, so
// that none is ambiguous, and those of removed policies are not looked for where there is nothing.
func (h *Handlers) history(w http.ResponseWriter, r *http.Request, p web.Params) error {
	limit, err := p.Limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	key := ""
	if given, there := p["key"]; there {
		if key, err = spelt(given); err != nil {
			return err
		}
	}
	before, err := number("after", p)
	if err != nil {
		return err
	}
	page, err := h.editor.Store().History(r.Context(), key, before, limit)
	if err != nil {
		return err
	}
	answer := historyAnswer{Changes: make([]changeAnswer, len(page))}
	for i, e := range page {
		answer.Changes[i] = changeAnswer{e.Number, e.Generation, e.Key, e.By, instant(e.At), revisionOf(e.Before), revisionOf(e.After)}
	}
	if len(page) == limit {
		answer.Next = page[limit-1].Number
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

// number reads a parameter that is the number of an entry; 0 if it is not there.
func number(name string, p web.Params) (int64, error) {
	text, there := p[name]
	if !there {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > maxNumber {
		return 0, badRequest("%s is %q, want what a page gave as next: a whole number from 1 to %d", name, web.Clip(text), int64(maxNumber))
	}
	return int64(n), nil
}
