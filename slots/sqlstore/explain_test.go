package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/testenv"
	"github.com/jackc/pgx/v5"
)

// The statements of the hot path use the indexes that are meant for them in
// tables of a size where that matters.
func TestStatementsUseTheirIndexes(t *testing.T) {
	eachMake(t, func(t *testing.T, db *DB) {
		const rows = 4_000
		s := slots.Series{Scope: "*", SizeMs: 4000}
		fill(t, db, s, rows)
		d := db.dialect
		st := &d.statements
		mid := int64(rows / 2 * 4000)
		for _, c := range []struct {
			name  string
			query query
			index string // in lower case, as the dialect's plan names it
		}{
			{"find", d.find([]string{"e17"}), "rl_event_slot_dtl_iux"},
			{"peek", st.peek.with(s.Scope, s.SizeMs, db.at(mid)), "pk"},
			{"run", st.run.with(s.Scope, s.SizeMs, int64(5), db.at(mid)), "pk"},
			{"make", st.make.with(s.Scope, s.SizeMs, db.at(rows*4000), db.at(rows*4000+4000)), "rl_event_slot_dtl_i03x"},
			{"lock", st.lock.with(s.Scope, s.SizeMs, db.at(mid), int64(1<<30), "c"), "pk"},
			{"frontier", st.frontier.with(s.Scope, s.SizeMs, db.at(mid)), "pk"},
			{"count", st.count.with(s.Scope, db.at(mid), db.at(mid+4000)), "rl_event_slot_dtl_i03x"},
			{"since", st.since.with(db.at(0), db.at(0), "", 10), "rl_event_slot_dtl_i02x"},
			{"windows", st.windows.with(s.Scope, s.SizeMs, db.at(mid), db.at(mid+40_000), 10), "pk"},
		} {
			plan := strings.ToLower(explain(t, db, c.query))
			t.Logf("%s: %s", c.name, plan)
			if !uses(plan, c.index) {
				t.Errorf("%s does not use %s:\n%s", c.name, c.index, plan)
			}
		}
		if purge := st.purgeWindows.with(db.at(4000), db.at(time.Now().UnixMilli()), 10); purge.Text != "" {
			if plan := strings.ToLower(explain(t, db, purge)); !uses(plan, "rl_wndw_ct_i02x") {
				t.Errorf("purgeWindows does not use rl_wndw_ct_i02x:\n%s", plan)
			}
		}
		plan := strings.ToLower(explain(t, db, st.provision.with(s.Scope, s.SizeMs, db.at(mid), 100)))
		t.Logf("provision: %s", plan)
		if !uses(plan, "rl_event_slot_dtl_i03x") {
			t.Errorf("provision does not use rl_event_slot_dtl_i03x to count:\n%s", plan)
		}
	})
}

// PostgreSQL reads no table from end to end that nobody has run ANALYZE on: it would go on with
// that plan when the table has grown.
func TestPostgresScansNoFreshTable(t *testing.T) {
	db := migrated(t, shared(testenv.Postgres).create(t))
	schedule(t, db, "fresh", 0, 3)
	s, st := slots.Series{Scope: "fresh", SizeMs: 4000}, &db.dialect.statements
	for name, q := range map[string]query{
		"find": db.dialect.find([]string{"e1", "e2"}), "peek": st.peek.with(s.Scope, s.SizeMs, db.at(0)),
		"windows": st.windows.with(s.Scope, s.SizeMs, db.at(0), db.at(40_000), 10),
		"run":     st.run.with(s.Scope, s.SizeMs, int64(5), db.at(0)),
		"make":    st.make.with(s.Scope, s.SizeMs, db.at(0), db.at(4000)), "lock": st.lock.with(s.Scope, s.SizeMs, db.at(0),
			int64(5), "first"),
		"count": st.count.with(s.Scope, db.at(0), db.at(4000)), "since": st.since.with(db.at(0), db.at(0), "", 10),
		"activeConfig": st.activeConfig.with("fresh"),
		"claim":        db.dialect.claim(s, 0, []slots.Slot{slotOf(1, 0)})[0],
		"place":        db.dialect.place("first", s, 0, 5, []slots.Slot{slotOf(1, 0)}, nil)[0],
	} {
		if plan := strings.ToLower(explain(t, db, q)); strings.Contains(plan, "seq scan") {
			t.Errorf("%s scans a table:\n%s", name, plan)
		}
	}
	provision := st.provision.with(s.Scope, s.SizeMs, db.at(0), int64(100))
	if plan := strings.ToLower(explain(t, db, provision)); !strings.Contains(plan, "wndw_strt_ts >=") {
		t.Errorf("provision reads a whole series:\n%s", plan)
	}
}

// uses reports whether a plan names an index as the one that it uses. The primary
// key has different names.
func uses(plan, index string) bool {
	names := []string{"using index " + index, "using covering index " + index, // SQLite
		"index scan using " + index, "index only scan using " + index, "bitmap index scan on " + index,
		"index scan backward using " + index, "index only scan backward using " + index,
		" key=" + index} // MySQL
	if index == "pk" {
		names = []string{"using primary key", "scan using rl_wndw_ct_pk", "backward using rl_wndw_full_run_pk",
			"backward using rl_wndw_frontier_trk_pk", " key=primary", "select tables optimized away"}
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(plan, name) })
}

// fill makes windows, a third of them full, slots and frontiers.
func fill(t *testing.T, db *DB, s slots.Series, rows int64) {
	t.Helper()
	ctx := soon(t)
	for chunk := range rows / 100 {
		from := chunk * 100 * s.SizeMs
		_, err := db.Provision(ctx, s, from, from+100*s.SizeMs, &slots.Frontier{ChunkMs: from, EndMs: from + 100*s.SizeMs})
		check(t, err)
		for k := range int64(10) {
			_, err := db.Provision(ctx, s, from, from, &slots.Frontier{ChunkMs: from, EndMs: from + (200+k)*s.SizeMs})
			check(t, err)
		}
		var claimed []slots.Slot
		for k := range int64(100) {
			n := chunk*100 + k
			claimed = append(claimed, slots.Slot{ID: fmt.Sprint("s", n), EventID: fmt.Sprint("e", n), Series: s,
				RequestedUs: n * 1000, WindowMs: from, ScheduledMs: from + k*s.SizeMs, ConfigID: "c"})
		}
		tx, err := db.Begin(ctx, "")
		check(t, err)
		check(t, tx.Claim(ctx, s, from, claimed))
		check(t, tx.Commit(ctx))
	}
	for _, table := range []string{"RL_WNDW_CT", "RL_EVENT_SLOT_DTL", "RL_WNDW_FRONTIER_TRK"} {
		text := map[string]string{"mysql": "ANALYZE TABLE " + table}[db.dialect.Name]
		if text == "" {
			text = "ANALYZE " + table
		}
		rows, err := db.sql.Write.QueryContext(ctx, text)
		check(t, err)
		check(t, rows.Close())
	}
}

// explain returns the database's plan of a statement, as text.
func explain(t *testing.T, db *DB, q query) string {
	t.Helper()
	prefix := map[string]string{"sqlite": "EXPLAIN QUERY PLAN ", "mysql": "EXPLAIN FORMAT=TRADITIONAL "}[db.dialect.Name]
	if prefix == "" {
		prefix = "EXPLAIN "
	}
	if db.dialect.Name == "postgres" {
		// The plan for whatever arguments come, as cached statements use it.
		conn, err := db.sql.Read.Conn(soon(t))
		check(t, err)
		defer conn.Close()
		var args []string
		for _, a := range q.Args {
			args = append(args, postgresLiteral(a))
		}
		for _, text := range []string{"SET plan_cache_mode = force_generic_plan", "DEALLOCATE ALL",
			"PREPARE q AS " + q.Text} {
			_, err = conn.ExecContext(soon(t), text, pgx.QueryExecModeSimpleProtocol)
			check(t, err)
		}
		return planOf(t, conn, query{Text: prefix + "EXECUTE q(" + strings.Join(args, ", ") + ")",
			Args: []any{pgx.QueryExecModeSimpleProtocol}})
	}
	return planOf(t, db.sql.Read, query{Text: prefix + q.Text, Args: q.Args})
}

func postgresLiteral(arg any) string {
	switch v := arg.(type) {
	case []string:
		return "'{" + strings.Join(v, ",") + "}'"
	case time.Time:
		return "'" + v.Format(time.RFC3339Nano) + "'"
	case []time.Time:
		var all []string
		for _, at := range v {
			all = append(all, at.Format(time.RFC3339Nano))
		}
		return "'{" + strings.Join(all, ",") + "}'"
	}
	return fmt.Sprintf("'%v'", arg)
}

func planOf(t *testing.T, on interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, q query) string {
	t.Helper()
	rows, err := on.QueryContext(soon(t), q.Text, q.Args...)
	check(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	check(t, err)
	var b strings.Builder
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		to := make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		check(t, rows.Scan(to...))
		for i, v := range values {
			fmt.Fprintf(&b, "%s=%s ", columns[i], v.String)
		}
		b.WriteByte('\n')
	}
	check(t, rows.Err())
	return b.String()
}
