package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
)

// changeColumns are those of the history. A revision that there was not is NULL.
var changeColumns = []string{"CHANGE_ID", "GENERATION", "POLICY_KEY", "CHANGED_BY", "CHANGED_US",
	"BEFORE_TYPE", "BEFORE_CAPACITY", "BEFORE_REFILL_RATE", "BEFORE_WINDOW_SECONDS", "BEFORE_VERSION",
	"AFTER_TYPE", "AFTER_CAPACITY", "AFTER_REFILL_RATE", "AFTER_WINDOW_SECONDS", "AFTER_VERSION"}

// record writes into the history what has become of keys, and removes what there is no room for.
func (e *edition) record(ctx context.Context, keys []string, done []table.Outcome) error {
	var changed []string
	for i := range done {
		if done[i].Changed() {
			changed = append(changed, keys[i])
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := e.readEnds(ctx); err != nil {
		return err
	}
	if err := e.forgetOfKeys(ctx, changed); err != nil {
		return err
	}
	args := make([]any, 0, len(changed)*len(changeColumns))
	for i := range done {
		if o := &done[i]; o.Changed() {
			e.last++
			args = append(args, e.last, e.state.Generation, keys[i], e.by, e.state.Now)
			args = append(append(args, revision(o.Before)...), revision(o.After)...)
		}
	}
	if err := e.change(ctx, e.s.d.put("HEADGATE_POLICY_CHANGE", changeColumns, len(changed)), args...); err != nil {
		return err
	}
	return e.forget(ctx, len(changed))
}

// revision are the values of a policy in the history.
func revision(p *table.Policy) []any {
	if p == nil {
		return make([]any, 5)
	}
	return []any{policies.TypeOf(p.Algorithm), p.Capacity, p.Refill.String(), p.Window.String(), p.Version}
}

// readEnds reads where the history begins and ends.
func (e *edition) readEnds(ctx context.Context) error {
	if e.known {
		return nil
	}
	var first, last sql.NullInt64
	q := e.s.db.Dialect.Query("SELECT (SELECT MIN(CHANGE_ID) FROM HEADGATE_POLICY_CHANGE), (SELECT MAX(CHANGE_ID) FROM " +
		"HEADGATE_POLICY_CHANGE)" +
		" FROM HEADGATE_POLICY_STATE WHERE ID = 1")
	_, err := e.s.db.Row(ctx, e.tx, changeOp, q, &first, &last)
	e.known, e.first, e.last = true, cmp.Or(first.Int64, 1), last.Int64
	return err
}

// forgetOfKeys removes the oldest change of each key that has as many as it may have, as one more comes.
func (e *edition) forgetOfKeys(ctx context.Context, keys []string) error {
	places, args := sqldb.Listed(keys)
	q := e.s.db.Dialect.Query("SELECT MIN(CHANGE_ID) FROM HEADGATE_POLICY_CHANGE WHERE POLICY_KEY IN ("+places+
		") GROUP BY POLICY_KEY HAVING COUNT(*) >= ?", append(args, e.s.keep.ofKey)...)
	oldest, err := sqldb.All(ctx, e.s.db, e.tx, changeOp, q, func(rows *sql.Rows) (id int64, err error) {
		err = rows.Scan(&id)
		return id, err
	})
	if err != nil || len(oldest) == 0 {
		return err
	}
	places, args = sqldb.Listed(oldest)
	return e.change(ctx, "DELETE FROM HEADGATE_POLICY_CHANGE WHERE CHANGE_ID IN ("+places+")", args...)
}

// forget removes the oldest changes, after some were added, if there are more than there may be.
func (e *edition) forget(ctx context.Context, added int) error {
	// Twice as many as were added, so that a history that is too long gets shorter by steps. A step
	// begins where the one before ended: a database would walk over the rows that this transaction
	// has deleted before.
	to := min(e.last-e.s.keep.all, e.first+2*int64(added)-1)
	if to < e.first {
		return nil
	}
	err := e.change(ctx, "DELETE FROM HEADGATE_POLICY_CHANGE WHERE CHANGE_ID BETWEEN ? AND ?", e.first, to)
	e.first = to + 1
	return err
}

// History implements [table.Store].
func (s *Store) History(ctx context.Context, key string, before int64, n int) (all []table.Entry, err error) {
	columns := strings.Join(changeColumns, ", ")
	for _, c := range changeColumns {
		if strings.HasSuffix(c, "_REFILL_RATE") || strings.HasSuffix(c, "_WINDOW_SECONDS") {
			columns = strings.Replace(columns, c, s.d.amount(c), 1)
		}
	}
	text := "SELECT " + columns + " FROM HEADGATE_POLICY_CHANGE WHERE CHANGE_ID < ?"
	args := []any{cmp.Or(before, math.MaxInt64)}
	if key != "" {
		text += " AND POLICY_KEY = ?"
		args = append(args, key)
	}
	text += " ORDER BY CHANGE_ID DESC" + strings.ReplaceAll(s.d.first, "#", strconv.Itoa(n))
	all, err = sqldb.All(ctx, s.db, s.db.Read, historyOp, s.db.Dialect.Query(text, args...), entry)
	return all, failed(err)
}

// stored is a revision as a row has it.
type stored struct {
	kind, refill, window sql.NullString
	capacity, version    sql.NullInt64
}

func (r *stored) revision() *table.Revision {
	if !r.version.Valid {
		return nil
	}
	// There is no algorithm if the policy was written by hand.
	figures, _ := table.ReadFigures(r.kind.String, r.capacity.Int64, r.refill.String, r.window.String)
	return &table.Revision{Figures: figures, Version: r.version.Int64}
}

// entry reads a row of changeColumns.
func entry(rows *sql.Rows) (e table.Entry, err error) {
	var by sql.NullString // in Oracle an empty text is NULL
	var us int64
	var before, after stored
	err = rows.Scan(&e.Number, &e.Generation, &e.Key, &by, &us,
		&before.kind, &before.capacity, &before.refill, &before.window, &before.version,
		&after.kind, &after.capacity, &after.refill, &after.window, &after.version)
	e.By, e.At = by.String, time.UnixMicro(us).UTC()
	e.Before, e.After = before.revision(), after.revision()
	return e, err
}
