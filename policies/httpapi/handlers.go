package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

const (
	defaultPage = 100
	maxPage     = 1000
	rowBytes    = 1 << 10 // that a row of a list keeps in memory until it is written
)

type listAnswer struct {
	Policies web.Rows `json:"policies"`       // *policyAnswer
	Next     string   `json:"next,omitempty"` // if there may be more
}

// prefixForm is what keys consist of.
var prefixForm = regexp.MustCompile(fmt.Sprintf(`^[\x21-\x7e]{0,%d}$`, policies.MaxKey))

// list answers with a page of policies, in the order of the bytes of their keys.
func (h *Handlers) list(w http.ResponseWriter, r *http.Request, p web.Params) error {
	limit, err := p.Limit(defaultPage, maxPage)
	if err != nil {
		return err
	}
	for _, name := range []string{"prefix", "after"} {
		if !prefixForm.MatchString(p[name]) {
			return web.BadRequest("%s is %q, want what keys have: at most %d visible ASCII characters without spaces", name,
				web.Clip(p[name]), policies.MaxKey)
		}
	}
	if err := web.Keep(w, r, limit*rowBytes); err != nil {
		return err
	}
	page, err := h.editor.Store().List(r.Context(), p["after"], p["prefix"], limit)
	if err != nil {
		return err
	}
	answer := listAnswer{Policies: web.RowsOf(page, func(p table.Policy) *policyAnswer { return answerOf(&p) })}
	if len(page) == limit {
		answer.Next = page[limit-1].Key
	}
	web.JSON(w, http.StatusOK, answer)
	return nil
}

func (h *Handlers) get(w http.ResponseWriter, r *http.Request, p web.Params) error {
	key, err := keyOf(p["key"])
	if err != nil {
		return err
	}
	policy, ok, err := h.editor.Store().Get(r.Context(), key)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%s: %w", key, table.ErrNotFound)
	}
	h.send(w, http.StatusOK, &policy)
	return nil
}

func (h *Handlers) send(w http.ResponseWriter, status int, p *table.Policy) {
	w.Header().Set("ETag", etag(p))
	web.JSON(w, status, h.warn(answerOf(p)))
}

// create makes a policy that does not exist.
func (h *Handlers) create(w http.ResponseWriter, r *http.Request, p web.Params) error {
	var body Body
	if err := web.ReadJSON(w, r, maxBody, &body); err != nil {
		return err
	}
	given, err := body.givenKey()
	switch {
	case err != nil:
		return err
	case given == nil:
		return web.BadRequest("key is missing")
	}
	key, err := keyOf(*given)
	if err != nil {
		return err
	}
	edit := table.Edit{Key: key, If: table.IfAbsent}
	if edit.Figures, err = body.figures(); err != nil {
		return err
	}
	return h.change(w, r, p, edit, func(made *table.Policy) {
		w.Header().Set("Location", "/admin/policies/"+url.PathEscape(made.Key))
		h.send(w, http.StatusCreated, made)
	})
}

// update changes a policy that exists.
func (h *Handlers) update(w http.ResponseWriter, r *http.Request, p web.Params) error {
	key, err := keyOf(p["key"])
	if err != nil {
		return err
	}
	var body Body
	if err := web.ReadJSON(w, r, maxBody, &body); err != nil {
		return err
	}
	given, err := body.givenKey()
	if err != nil {
		return err
	}
	if given != nil {
		if in, err := keyOf(*given); err != nil || in != key {
			return web.BadRequest("key is %q, and the path names %q: a policy keeps its key", web.Clip(*given), web.Clip(key))
		}
	}
	edit := table.Edit{Key: key, If: table.IfPresent}
	if edit.Figures, err = body.figures(); err != nil {
		return err
	}
	return h.change(w, r, p, edit, func(changed *table.Policy) { h.send(w, http.StatusOK, changed) })
}

// remove removes a policy that exists.
func (h *Handlers) remove(w http.ResponseWriter, r *http.Request, p web.Params) error {
	key, err := keyOf(p["key"])
	if err != nil {
		return err
	}
	edit := table.Edit{Key: key, Remove: true, If: table.IfPresent}
	return h.change(w, r, p, edit, func(*table.Policy) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	})
}

// previewAnswer is what a change would do.
type previewAnswer struct {
	DryRun bool          `json:"dryRun"`
	Before *policyAnswer `json:"before"` // null for a new policy
	After  *policyAnswer `json:"after"`  // null: there would be none
}

// change does an edit, or says with dryRun what it would do, and answers with the policy after it.
func (h *Handlers) change(w http.ResponseWriter, r *http.Request, p web.Params, edit table.Edit,
	done func(*table.Policy)) error {
	dry, err := dryRun(p)
	if err != nil {
		return err
	}
	if err := condition(r.Header, &edit); err != nil {
		return err
	}
	if err := h.usable(&edit); err != nil {
		return err
	}
	// A client that hangs up must not leave open whether a change is made.
	by, _ := r.Context().Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), by)
	defer cancel()
	who := web.CallerOf(r.Context())
	outcomes, err := h.editor.Apply(ctx, []table.Edit{edit}, who, dry)
	if err != nil {
		if !dry {
			err = changeError{err}
		}
		return err
	}
	o := outcomes[0]
	if dry {
		web.JSON(w, http.StatusOK, previewAnswer{DryRun: true, Before: answerOf(o.Before), After: h.warn(answerOf(o.After))})
		return nil
	}
	if o.Changed() {
		h.log.Info("policy changed", "key", edit.Key, "by", who, "before", summary(o.Before), "after", summary(o.After),
			"request_id", web.RequestID(r))
	}
	done(o.After)
	return nil
}

// summary is a policy for the log.
func summary(p *table.Policy) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%s version=%d", p.Text(), p.Version)
}

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
	if err := web.Keep(w, r, limit*rowBytes); err != nil {
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
