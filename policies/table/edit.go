package table

import (
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/policies"
)

// An Editor changes policies so that each change is in force everywhere within [Settle] of its
// commit.
//
// Followers ask once a second. So an editor first announces that changes come, and waits until
// every follower has seen that and asks every 50 ms. Then it commits. Changes that follow within
// ten seconds find the followers attentive, and do not wait.
type Editor struct {
	// Keeps returns why the store of the counters cannot keep a limit, or nil. Edits to such limits are refused. If
	// it is nil, all limits are accepted.
	Keeps policies.Keeps

	store Store
	hint  func()
}

// NewEditor returns an editor. hint, unless it is nil, is called after each change: it has the
// follower of this process look at once.
func NewEditor(store Store, hint func()) *Editor { return &Editor{store: store, hint: hint} }

// Store returns the store that the editor changes.
func (e *Editor) Store() Store { return e.store }

// Apply does edits, all or none, in the name of by. When it returns without an error, the changes
// are in force in every process that reaches the database. Keys must be those that [Normalize]
// returns, and each may be edited once. With dryRun it changes nothing, and returns what would be.
func (e *Editor) Apply(ctx context.Context, edits []Edit, by string, dryRun bool) ([]Outcome, error) {
	if len(by) > MaxChangedBy || !utf8.ValidString(by) {
		return nil, fmt.Errorf("%w: the name of who changes it is not a text of at most %d bytes", ErrInvalid, MaxChangedBy)
	}
	keys := make(map[string]bool, len(edits))
	for i := range edits {
		err := edits[i].check()
		if err == nil && !edits[i].Remove {
			err = e.Keeps.Check(edits[i].Figures)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %.300q: %w", ErrInvalid, edits[i].Key, err)
		}
		if keys[edits[i].Key] {
			return nil, fmt.Errorf("%w: the key %q is there twice", ErrInvalid, edits[i].Key)
		}
		keys[edits[i].Key] = true
	}
	planned, err := e.store.Apply(ctx, edits, by, 0, true)
	if err != nil || dryRun || !AnyChanged(planned) {
		return planned, err
	}
	resume := background.Yield(ctx)
	err = e.announce(ctx, len(edits))
	resume()
	if err != nil {
		return nil, err
	}
	done, err := e.store.Apply(ctx, edits, by, watchFor.Microseconds(), false)
	if err != nil {
		return nil, err
	}
	if e.hint != nil {
		e.hint()
	}
	if AnyChanged(done) {
		// The change is made whatever becomes of the wait.
		_ = background.Sleep(ctx, Settle)
	}
	return done, nil
}

// AnyChanged reports whether one of the edits has changed anything.
func AnyChanged(outcomes []Outcome) bool {
	return slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.Changed() })
}

// announce returns when all followers look often, and will until so many edits are committed.
func (e *Editor) announce(ctx context.Context, edits int) error {
	state, err := e.store.Watch(ctx, (watchFor + time.Duration(edits)*perEdit).Microseconds())
	if err != nil {
		return err
	}
	attentive := time.Duration(state.Now-state.WatchFrom) * time.Microsecond
	return background.Sleep(ctx, noticed-attentive)
}
