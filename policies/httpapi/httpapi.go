package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/web"
	"github.com/headgate-rls/headgate/policies/table"
)

// timeout bounds a request, the arrival of its body included. A change takes up to two seconds if
// none was made for a while, and waits for those before it.
const timeout = 10 * time.Second

// An editor is a [table.Editor].
type editor interface {
	Store() table.Store
	Apply(ctx context.Context, edits []table.Edit, by string, dryRun bool) ([]table.Outcome, error)
}

// Handlers are the HTTP handlers of policies. They answer requests whose paths begin with /admin/. A guard must stand
// in front of them.
type Handlers struct {
	http.Handler
	// Used reports whether a rule in force looks a policy with a key up. Answers about other policies have a warning;
	// if it is nil, none has.
	Used func(key string) bool
	// WhyNot says why no policy with this key can ever be used, or "": what sets one is refused. It may be nil.
	WhyNot func(key string) string

	editor editor
	log    *slog.Logger
}

// unused is the warning of a policy that decides nothing.
const unused = "no rule in force uses this policy: no policy: of a rule makes this key, and no rule has this name"

// usable returns an error if the edit makes a policy that can never be used.
func (h *Handlers) usable(edit *table.Edit) error {
	if h.WhyNot == nil || edit.Remove {
		return nil
	}
	if why := h.WhyNot(edit.Key); why != "" {
		return &web.RequestError{Status: http.StatusUnprocessableEntity, Message: edit.Key + ": " + why}
	}
	return nil
}

// warn returns the warning of a policy, if it has one.
func (h *Handlers) warn(p *policyAnswer) *policyAnswer {
	if p != nil && h.Used != nil && !h.Used(p.Key) {
		p.Warning = unused
	}
	return p
}
