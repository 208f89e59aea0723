package httpapi

import (
	"net/http"
	"strconv"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies/table"
)

// maxNumber is the largest number of an entry: every client of JSON knows it exactly.
const maxNumber = 1<<53 - 1

type historyAnswer struct {
	Changes []table.Entry `json:"changes"`
	Next    int64         `json:"next,omitempty"` // if there may be more
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
	answer := historyAnswer{Changes: page}
	if page == nil {
		answer.Changes = []table.Entry{} // not null
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
		return 0, web.BadRequest("%s is %q, want what a page gave as next: a whole number from 1 to %d", name, web.Clip(text),
			int64(maxNumber))
	}
	return int64(n), nil
}
