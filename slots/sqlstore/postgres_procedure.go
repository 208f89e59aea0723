package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/slots"
)

const postgresCall = "SELECT * FROM RL_SLOT_PLACE($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"

// postgresAssign calls the function, whose transaction is its own.
func postgresAssign(ctx context.Context, db *sql.DB, s *slots.Search) (*assigned, error) {
	a := &s.Asks[0]
	row := db.QueryRowContext(ctx, postgresCall,
		s.Scope, s.SizeMs, s.ConfigID, s.Max, s.Stratified, s.FirstMs, s.FromMs, s.Direct, s.EndMs,
		a.EventID, a.SlotID, time.UnixMicro(a.RequestedUs).UTC(), a.ElapsedMs, a.FirstMax, int64(a.Bits))
	var r assigned
	var id, scope, config sql.NullString
	var size sql.NullInt64
	var requestedUs, windowUs, scheduledUs, createdUs int64
	var none bool
	into := func(us *int64) sql.Scanner { return sqldb.Postgres.IntoNull(us, &none) }
	err := row.Scan(&r.status, &id, &scope, &size, into(&requestedUs), into(&windowUs), into(&scheduledUs), &config,
		into(&createdUs),
		&r.firstCount, &r.lowMs, &r.exhausted, &r.windows, &r.contended)
	r.slot = slots.Slot{
		ID: id.String, EventID: a.EventID, Series: slots.Series{Scope: scope.String, SizeMs: size.Int64},
		RequestedUs: requestedUs, WindowMs: millis(windowUs), ScheduledMs: millis(scheduledUs),
		ConfigID: config.String, CreatedUs: createdUs,
	}
	return &r, err
}
