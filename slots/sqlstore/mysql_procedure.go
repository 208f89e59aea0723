package sqlstore

import (
	"context"
	"database/sql"

	"github.com/headgate-rls/headgate/slots"
)

const mysqlCall = "CALL RL_SLOT_ASSIGN(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

// mysqlAssign calls the procedure, outside a transaction: it has its own.
func mysqlAssign(ctx context.Context, db *sql.DB, s *slots.Search) (*assigned, error) {
	requested := mysqlInstant(s.Asks[0].RequestedUs)
	row := db.QueryRowContext(ctx, mysqlCall, callArgs(s, requested)...)
	return scanAssigned(row, &s.Asks[0], mysqlMicros)
}
