package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// keepGone is for how many generations removed keys are remembered, and sweepGone how often they
// are dropped, in generations.
const keepGone, sweepGone = 10_000, 100

// An edition is one transaction of edits.
type edition struct {
	s     *Store
	tx    sqldb.Session
	state table.State // with the new generation
	by    string
	done  []table.Outcome
	// The least and the largest CHANGE_ID of the history; known: they were read. No other transaction writes to the
	// history, because this one has locked the row of the state.
	known       bool
	first, last int64
}

// Apply implements [table.Store].
func (s *Store) Apply(ctx context.Context, edits []table.Edit, by string, us int64,
	dryRun bool) ([]table.Outcome, error) {
	var e *edition
	do := func(tx sqldb.Session, lock string) (err error) {
		e = &edition{s: s, tx: tx, by: by}
		if e.state, err = s.state(ctx, tx, lock); err != nil {
			return err
		}
		e.state.Generation++
		if err = e.all(ctx, edits, !dryRun); err != nil || dryRun {
			return err
		}
		return e.finish(ctx, us)
	}
	var err error
	if dryRun {
		err = do(s.db.Read, "")
	} else {
		err = s.transact(ctx, func(tx *sql.Tx) error { return do(tx, s.d.lock) })
	}
	if err != nil {
		return nil, failed(err)
	}
	return e.done, nil
}

// all plans the edits, and with write does them.
func (e *edition) all(ctx context.Context, edits []table.Edit, write bool) error {
	for some := range slices.Chunk(edits, e.s.d.chunk) {
		if err := e.some(ctx, some, write); err != nil {
			return err
		}
	}
	if e.state.Policies > table.MaxPolicies {
		return table.ErrTooMany
	}
	return nil
}

// some plans and does the edits of one chunk.
func (e *edition) some(ctx context.Context, edits []table.Edit, write bool) error {
	keys := make([]string, len(edits))
	for i := range edits {
		keys[i] = edits[i].Key
	}
	before, err := e.s.byKey(ctx, e.tx, keys)
	if err != nil {
		return err
	}
	first := len(e.done)
	var put []*table.Policy
	var added, removed []string
	for i := range edits {
		o, err := e.plan(&edits[i], before[keys[i]])
		if err != nil {
			return err
		}
		e.done = append(e.done, o)
		switch {
		case !o.Changed():
		case o.After == nil:
			removed = append(removed, keys[i])
		default:
			put = append(put, o.After)
			if o.Before == nil {
				added = append(added, keys[i])
			}
		}
	}
	e.state.Policies += int64(len(added) - len(removed))
	if !write {
		return nil
	}
	if err := e.put(ctx, put, added); err != nil {
		return err
	}
	if err := e.remove(ctx, removed); err != nil {
		return err
	}
	if err := e.number(ctx, e.done[first:], added); err != nil {
		return err
	}
	return e.record(ctx, keys, e.done[first:])
}

// plan says what an edit makes of a policy.
func (e *edition) plan(edit *table.Edit, before *table.Policy) (table.Outcome, error) {
	o := table.Outcome{Before: before}
	if err := edit.Check(before); err != nil || edit.Remove {
		return o, err
	}
	after := table.Policy{Key: edit.Key, Figures: edit.Figures, Version: 1, ChangedBy: e.by,
		ChangedAt: time.UnixMicro(e.state.Now).UTC()}
	if before != nil {
		after.ID, after.Version = before.ID, before.Version+1
		if before.Same(after.Figures) {
			after = *before
		}
	}
	o.After = &after
	return o, nil
}

var policyColumns = []string{"POLICY_KEY", "TYPE", "CAPACITY", "REFILL_RATE", "WINDOW_SECONDS", "VERSION", "GENERATION",
	"CHANGED_BY", "CHANGED_US"}

// put writes policies, of which some are added.
func (e *edition) put(ctx context.Context, put []*table.Policy, added []string) error {
	if len(put) == 0 {
		return nil
	}
	args := make([]any, 0, len(put)*len(policyColumns))
	for _, p := range put {
		args = append(args, p.Key, policies.TypeOf(p.Algorithm), p.Capacity, p.Refill.String(), p.Window.String(),
			p.Version, e.state.Generation, p.ChangedBy, p.ChangedAt.UnixMicro())
	}
	if err := e.change(ctx, e.s.d.put("HEADGATE_POLICY", policyColumns, len(put)), args...); err != nil {
		return err
	}
	return e.drop(ctx, "HEADGATE_POLICY_GONE", added)
}

// remove removes policies, and remembers their keys.
func (e *edition) remove(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	args := make([]any, 0, 2*len(keys))
	for _, k := range keys {
		args = append(args, k, e.state.Generation)
	}
	if err := e.change(ctx, e.s.d.put("HEADGATE_POLICY_GONE", []string{"POLICY_KEY", "GENERATION"}, len(keys)),
		args...); err != nil {
		return err
	}
	return e.drop(ctx, "HEADGATE_POLICY", keys)
}

// drop deletes the rows of keys.
func (e *edition) drop(ctx context.Context, table string, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	places, args := sqldb.Listed(keys)
	return e.change(ctx, "DELETE FROM "+table+" WHERE POLICY_KEY IN ("+places+")", args...)
}

// number fills in the IDs of policies that were added.
func (e *edition) number(ctx context.Context, done []table.Outcome, added []string) error {
	if len(added) == 0 {
		return nil
	}
	found, err := e.s.byKey(ctx, e.tx, added)
	for i := range done {
		if p := done[i].After; err == nil && p != nil && p.ID == 0 && found[p.Key] != nil {
			p.ID = found[p.Key].ID
		}
	}
	return err
}

// finish writes the state, unless nothing has changed.
func (e *edition) finish(ctx context.Context, us int64) error {
	if !table.AnyChanged(e.done) {
		return nil
	}
	st := &e.state
	if st.Generation%sweepGone == 0 && st.Generation > keepGone {
		st.Floor = max(st.Floor, st.Generation-keepGone)
		if err := e.change(ctx, "DELETE FROM HEADGATE_POLICY_GONE WHERE GENERATION <= ?", st.Floor); err != nil {
			return err
		}
	}
	return e.change(ctx, "UPDATE HEADGATE_POLICY_STATE SET GENERATION = ?, FLOOR_GENERATION = ?, POLICIES = ?, "+
		"WATCH_UNTIL_US = ? WHERE ID = 1",
		st.Generation, st.Floor, st.Policies, max(st.WatchUntil, st.Now+us))
}

func (e *edition) change(ctx context.Context, text string, args ...any) error {
	return e.s.change(ctx, e.tx, text, args...)
}
