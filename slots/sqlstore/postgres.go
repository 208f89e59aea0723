package sqlstore

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

func postgresDialect() *dialect {
	return &dialect{
		Dialect:     sqldb.Postgres,
		find:        postgresFind,
		claim:       postgresClaim,
		place:       postgresPlace,
		statements:  postgresStatements(),
		boundedWait: postgresWait,
		shut:        postgresShut,
	}
}

func postgresFind(ids []string) query {
	return query{Text: "SELECT " + slotColumns + " FROM RL_EVENT_SLOT_DTL WHERE EVENT_ID = ANY($1::text[])",
		Args: []any{ids}}
}

// postgresInsert inserts slots: $1 is their scope, $2 the size and $3 the start of their window; the
// others are lists. A second table may follow.
const postgresInsert = `INSERT INTO RL_EVENT_SLOT_DTL (` + slotColumns + `, SCHEMA_NB)
SELECT U.ID, U.EVENT, $1::text, $2::bigint, U.REQUESTED, $3::timestamptz, U.SCHEDULED, U.CONFIG,
       clock_timestamp(), ` + schemaNumber + `
  FROM unnest($4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::text[])
    AS U (ID, EVENT, REQUESTED, SCHEDULED, CONFIG)`

// postgresWindow is the window of the slots.
const postgresWindow = ` WHERE WNDW_SCOPE_NM = $1::text AND WNDW_SIZE_MS = $2::bigint AND WNDW_STRT_TS = ` +
	`$3::timestamptz`

// postgresArgs are the arguments of postgresInsert.
func postgresArgs(s slots.Series, windowMs int64, claimed []slots.Slot) []any {
	n := len(claimed)
	ids, events, configs := make([]string, n), make([]string, n), make([]string, n)
	requested, scheduled := make([]time.Time, n), make([]time.Time, n)
	for i, c := range claimed {
		ids[i], events[i], configs[i] = c.ID, c.EventID, c.ConfigID
		requested[i], scheduled[i] = c.Requested(), c.Scheduled()
	}
	return []any{s.Scope, s.SizeMs, time.UnixMilli(windowMs).UTC(), ids, events, requested, scheduled, configs}
}

// postgresClaim is one statement: the update counts what the insert has returned.
func postgresClaim(s slots.Series, windowMs int64, claimed []slots.Slot) []query {
	return []query{{Text: "WITH I AS (\n" + postgresInsert + "\nRETURNING 1)\n" +
		"UPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + (SELECT COUNT(*) FROM I)" + postgresWindow,
		Args: postgresArgs(s, windowMs, claimed), Rows: 1}}
}

// postgresPlace is one statement: the insert needs the row that the update returns.
func postgresPlace(configID string, s slots.Series, windowMs, max int64, claimed []slots.Slot,
	count *sql.NullInt64) []query {
	n := int64(len(claimed))
	return []query{{Text: "WITH W AS (\nUPDATE RL_WNDW_CT SET SLOT_CT = SLOT_CT + $9::bigint" + postgresWindow +
		` AND SLOT_CT <= $10::bigint
   AND EPOCH_CT = COALESCE(
         (SELECT EPOCH_CT FROM RL_WNDW_EPOCH WHERE WNDW_SCOPE_NM = $1::text AND WNDW_SIZE_MS = $2::bigint), 0)
   AND (SELECT ACT_IN FROM RL_EVENT_WNDW_CONFIG WHERE RL_WNDW_CONFIG_ID = $11::text) = 1
RETURNING SLOT_CT), I AS (` + "\n" + postgresInsert + " CROSS JOIN W)\nSELECT SLOT_CT FROM W",
		Args: append(postgresArgs(s, windowMs, claimed), n, max-n, configID), To: []any{count}}}
}

// postgresWait bounds the wait for a window.
const postgresWait = "SET LOCAL lock_timeout = 1000"

// postgresShut takes the gates.
func postgresShut(ctx context.Context, _ *sqldb.DB, tx *sql.Tx, gates []query, _ int) error {
	wait := query{Text: "SET LOCAL lock_timeout = " + strconv.FormatInt(gateWait.Milliseconds(), 10)}
	for _, q := range append(append([]query{wait}, gates...), query{Text: "SET LOCAL lock_timeout = 0"}) {
		if _, err := tx.ExecContext(ctx, q.Text, q.Args...); err != nil {
			return err
		}
	}
	return nil
}

// renewByConflict is words.renew where inserts say ON CONFLICT.
const renewByConflict = " ON CONFLICT (WNDW_SCOPE_NM, WNDW_SIZE_MS, WNDW_STRT_TS) DO UPDATE SET SLOT_CT = " +
	"excluded.SLOT_CT," +
	" CREAT_TS = excluded.CREAT_TS, EPOCH_CT = excluded.EPOCH_CT WHERE RL_WNDW_CT.EPOCH_CT <> excluded.EPOCH_CT"

func postgresStatements() statements {
	w := words{
		Dialect: sqldb.Postgres,
		place:   func(n int) string { return "$" + strconv.Itoa(n) },
		types:   map[byte]string{':': "::text", '#': "::bigint"},
		texts: map[string]string{
			"lock":   " FOR UPDATE",
			"pass":   " FOR UPDATE SKIP LOCKED",
			"wait":   " FOR UPDATE",
			"plus":   "$1 + $2 * interval '1 millisecond'",
			"nth":    "(extract(epoch FROM $1 - $2) * 1000000)::bigint / ($3 * 1000)",
			"insert": "INSERT INTO $1",
			"skip":   " ON CONFLICT DO NOTHING",
			"fill":   "INSERT INTO $1",
			"filled": " ON CONFLICT DO NOTHING",
			"renew":  renewByConflict,
		},
	}
	s := w.statements()
	// One statement with the bound of the wait, which comes into force first.
	s.gate = text("SELECT CASE WHEN set_config('lock_timeout', '1000', true) IS NULL THEN 0" +
		" WHEN pg_advisory_xact_lock_shared(hashtextextended($1::text, 0)) IS NULL THEN 0 END")
	s.gateAll = text("SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))")
	return s
}
