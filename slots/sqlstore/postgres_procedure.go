package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/headgate-rls/headgate/slots"
)

// postgresCall has 22 arguments and 17 results, which must be given as something.
const postgresCall = `CALL RL_SLOT_ASSIGN($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`

// postgresAssign calls the procedure, outside a transaction: it commits.
func postgresAssign(ctx context.Context, db *sql.DB, s *slots.Search) (*assigned, error) {
	row := db.QueryRowContext(ctx, postgresCall, callArgs(s, time.UnixMicro(s.Asks[0].RequestedUs).UTC())...)
	return scanAssigned(row, &s.Asks[0], postgresMicros)
}
