//go:build !rlsonly

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/internal/app/client"
	"github.com/headgate-rls/headgate/policies/httpapi"
	"github.com/headgate-rls/headgate/policies/table"
)

// remotePolicies are the policies of a running service, by its admin API. What only followers of a database do, it
// does not have.
type remotePolicies struct {
	table.Store
	api *client.API
	// warn prints what the service warns of after a change, such as a policy that no rule uses.
	warn io.Writer
}

const policiesPath = "/admin/policies"

func policyPath(key string) string { return policiesPath + "/" + url.PathEscape(key) }

// Get implements table.Store.
func (r remotePolicies) Get(ctx context.Context, key string) (p table.Policy, ok bool, err error) {
	var body httpapi.Body
	err = r.api.Call(ctx, http.MethodGet, policyPath(key), nil, &body)
	if errors.As(notFound(err), new(notFoundError)) {
		return p, false, r.off(ctx, err)
	}
	if err != nil {
		return p, false, err
	}
	p, err = policyOf(&body)
	return p, err == nil, err
}

// off returns the error of a service that has no policies at all.
func (r remotePolicies) off(ctx context.Context, err error) error {
	if listed := r.api.Call(ctx, http.MethodGet, policiesPath+"?limit=1", nil, new(json.RawMessage)); listed != nil {
		return err
	}
	return nil
}

// policyOf reads a policy of an answer.
func policyOf(b *httpapi.Body) (p table.Policy, err error) {
	e, err := b.Edit()
	p.Key, p.Figures = e.Key, e.Figures
	if b.Version != nil {
		p.Version = int64(*b.Version)
	}
	if b.ChangedBy != nil {
		p.ChangedBy = *b.ChangedBy
	}
	if b.ChangedAt != nil && err == nil {
		p.ChangedAt, err = time.Parse(time.RFC3339, *b.ChangedAt)
	}
	return p, err
}

// List implements table.Store.
func (r remotePolicies) List(ctx context.Context, after, prefix string, n int) (list []table.Policy, err error) {
	query := queryOf(map[string]string{"limit": strconv.Itoa(n), "after": after, "prefix": prefix})
	var answer struct {
		Policies []httpapi.Body `json:"policies"`
	}
	if err := r.api.Call(ctx, http.MethodGet, policiesPath+"?"+query.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	for i := range answer.Policies {
		p, err := policyOf(&answer.Policies[i])
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// History implements table.Store.
func (r remotePolicies) History(ctx context.Context, key string, before int64, n int) (list []table.Entry, err error) {
	query := queryOf(map[string]string{"limit": strconv.Itoa(n), "key": key})
	if before > 0 {
		query.Set("after", strconv.FormatInt(before, 10))
	}
	var answer struct {
		Changes []struct {
			Number, Generation int64
			Key, ChangedBy     string
			ChangedAt          time.Time
			Before, After      *httpapi.Body
		} `json:"changes"`
	}
	if err := r.api.Call(ctx, http.MethodGet, "/admin/policies-history?"+query.Encode(), nil, &answer); err != nil {
		return nil, err
	}
	for _, c := range answer.Changes {
		e := table.Entry{Number: c.Number, Generation: c.Generation, Key: c.Key, By: c.ChangedBy, At: c.ChangedAt}
		e.Before, err = revisionOf(c.Key, c.Before)
		if err == nil {
			e.After, err = revisionOf(c.Key, c.After)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

func revisionOf(key string, b *httpapi.Body) (*table.Revision, error) {
	if b == nil {
		return nil, nil
	}
	b.Key = &key
	p, err := policyOf(b)
	return &table.Revision{Figures: p.Figures, Version: p.Version}, err
}

// Watch implements table.Store: it is the service that has its followers look.
func (r remotePolicies) Watch(context.Context, int64) (table.State, error) {
	return table.State{Now: time.Hour.Microseconds()}, nil
}

// neverUsed turns the refusal of a policy for a rule that uses none into a notFoundError.
func neverUsed(err error) error {
	if refusal, ok := errors.AsType[*client.Refusal](err); ok && refusal.Code == http.StatusUnprocessableEntity {
		return notFoundError{errors.New(refusal.Message)}
	}
	return err
}

// Apply implements table.Store, for one edit: the service changes one policy at a time. It logs who changes it by the
// token.
func (r remotePolicies) Apply(ctx context.Context, edits []table.Edit, _ string, _ int64, dry bool) ([]table.Outcome,
	error) {
	if len(edits) != 1 {
		return nil, inputError{fmt.Errorf("a service changes one policy at a time, not %d: give its database by --policies",
			len(edits))}
	}
	e := &edits[0]
	old, exists, err := r.Get(ctx, e.Key)
	var out table.Outcome
	if exists {
		out.Before = &old
	}
	switch {
	case err != nil:
		return nil, err
	case e.Remove && !exists:
		return nil, fmt.Errorf("%s: %w", e.Key, table.ErrNotFound)
	}
	query := ""
	if dry {
		query = "?dryRun=true"
	}
	body := struct {
		Key string `json:"key"`
		table.OlderWords
	}{e.Key, table.OlderWordsOf(e.Figures)}
	method, path, sent := http.MethodPost, policiesPath, any(body)
	switch {
	case e.Remove:
		method, path, sent = http.MethodDelete, policyPath(e.Key), nil
	case exists:
		method, path = http.MethodPut, policyPath(e.Key)
	}
	var answer struct {
		After struct {
			Warning string `json:"warning"`
		} `json:"after"` // of a dry run
	}
	if err := r.api.Call(ctx, method, path+query, sent, &answer); err != nil {
		return nil, neverUsed(err)
	}
	// An editor plans each change by a dry run first, so that one says it once.
	if warning := answer.After.Warning; warning != "" {
		fmt.Fprintf(r.warn, "headgate: warning: %s: %s\n", e.Key, warning)
	}
	if e.Remove {
		return []table.Outcome{out}, nil
	}
	made := table.Policy{Key: e.Key, Figures: e.Figures, Version: old.Version + 1, ChangedBy: shellUser()}
	if !dry {
		if made, _, err = r.Get(ctx, e.Key); err != nil {
			return nil, err
		}
	}
	out.After = &made
	return []table.Outcome{out}, nil
}
