package sqlstore

import "github.com/headgate-rls/headgate/internal/kit/sqldb"

// postgres is PostgreSQL.
//
// Each text leaves the planner no choice but the primary key, row by row: a plan that was made while
// the table was small is kept when it has grown. Rows are locked in the order of the array.
func postgres() *dialect {
	const insert = "INSERT INTO HEADGATE_STATE (" + columns + ")" +
		" SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])"
	d := &dialect{
		Dialect: sqldb.Postgres, maxLeases: 512, relaxes: true,
		lock: func(keys [][]byte, _ bool) []sqldb.Query {
			return []sqldb.Query{{Args: []any{keys}, Text: "SELECT S.K, S.STATE FROM unnest($1::bytea[]) AS U (K)" +
				" CROSS JOIN LATERAL (SELECT K, STATE FROM HEADGATE_STATE WHERE K = U.K FOR UPDATE) AS S"}}
		},
		put: func(rows []row) sqldb.Query {
			return sqldb.Query{Args: arrays(rows), Text: insert +
				" ON CONFLICT (K) DO UPDATE SET STATE = excluded.STATE, AT_US = excluded.AT_US, N = excluded.N, M = excluded.M, " +
				"ENDS_US = excluded.ENDS_US"}
		},
		add: func(rows []row) sqldb.Query { return sqldb.Query{Text: insert, Args: arrays(rows)} },
		drop: func(keys [][]byte) []sqldb.Query {
			return []sqldb.Query{{Text: "DELETE FROM HEADGATE_STATE WHERE K = ANY ($1)", Args: []any{keys}},
				{Text: "DELETE FROM HEADGATE_LOG WHERE K = ANY ($1)", Args: []any{keys}}}
		},
		oldest: func(of []part) []sqldb.Query {
			keys, _, _ := partArrays(of)
			return []sqldb.Query{{Args: []any{keys}, Text: "SELECT L.K, L.PART FROM unnest($1::bytea[]) AS U (K)" +
				" CROSS JOIN LATERAL (SELECT K, PART FROM HEADGATE_LOG WHERE K = U.K ORDER BY LAST_US LIMIT 2) AS L"}}
		},
		parts: func(of []part) []sqldb.Query {
			keys, last, _ := partArrays(of)
			return []sqldb.Query{
				{Args: []any{keys, last}, Text: "SELECT L.K, L.PART FROM unnest($1::bytea[], $2::bigint[]) AS U (K, LAST_US)" +
					" CROSS JOIN LATERAL (SELECT K, PART FROM HEADGATE_LOG WHERE K = U.K AND LAST_US = U.LAST_US OFFSET 0) AS L"}}
		},
		addParts: func(all []part) sqldb.Query {
			keys, last, states := partArrays(all)
			return sqldb.Query{Args: []any{keys, last, states}, Text: "INSERT INTO HEADGATE_LOG (K, LAST_US, PART)" +
				" SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[]) ON CONFLICT (K, LAST_US) DO UPDATE SET PART = " +
				"excluded.PART"}
		},
		dropParts: func(all []part) []sqldb.Query {
			keys, last, _ := partArrays(all)
			return []sqldb.Query{{Args: []any{keys, last}, Text: "DELETE FROM HEADGATE_LOG WHERE ctid = ANY (ARRAY(" +
				"SELECT L.ctid FROM unnest($1::bytea[], $2::bigint[]) AS U (K, LAST_US)" +
				" CROSS JOIN LATERAL (SELECT ctid FROM HEADGATE_LOG WHERE K = U.K AND LAST_US = U.LAST_US OFFSET 0) AS L))"}}
		},
		there: func(keys [][]byte) sqldb.Query {
			return sqldb.Query{Args: []any{keys}, Text: "SELECT S.K FROM unnest($1::bytea[]) AS U (K)" +
				" CROSS JOIN LATERAL (SELECT K FROM HEADGATE_STATE WHERE K = U.K OFFSET 0) AS S"}
		},
		expired: func(keys [][]byte, before int64) sqldb.Query {
			return sqldb.Query{Args: []any{keys, before}, Text: "SELECT S.K FROM unnest($1::bytea[]) AS U (K)" +
				" CROSS JOIN LATERAL (SELECT K FROM HEADGATE_STATE WHERE K = U.K AND ENDS_US < $2 FOR UPDATE SKIP LOCKED) AS S"}
		},
	}
	return d.texts()
}

// partArrays are the columns of parts.
func partArrays(all []part) (keys [][]byte, last []int64, states [][]byte) {
	for i := range all {
		keys, last, states = append(keys, all[i].key), append(last, all[i].last), append(states, all[i].state)
	}
	return keys, last, states
}

// arrays are the columns of rows.
func arrays(rows []row) []any {
	keys, states := make([][]byte, len(rows)), make([][]byte, len(rows))
	figures := make([]int64, 4*len(rows))
	at, n, m, ends := figures[:len(rows)], figures[len(rows):2*len(rows)], figures[2*len(rows):3*len(rows)],
		figures[3*len(rows):]
	for i := range rows {
		r := &rows[i]
		keys[i], states[i], at[i], n[i], m[i], ends[i] = r.key, r.state, r.at, r.n, r.m, int64(r.ends)
	}
	return []any{keys, states, at, n, m, ends}
}
