package sqldb

import (
	"context"
	"database/sql"
)

// A Query is a text in the dialect of the database and what its placeholders stand for.
type Query struct {
	Text string
	Args []any
	Rows int64 // how many rows it must change; 0: any number
	// To is where its row goes, if it is one of the queries before the last of Tx.Row, or one of
	// Tx.Whole. One without To must return no rows.
	To []any
	// Kept: the text is one of a few, and the statement so quick that the context need not end
	// it. SQLite compiles it once for each connection.
	Kept bool
}

// A Session is where statements run: a pool (*sql.DB), one connection of it (*sql.Conn) or a
// transaction (*sql.Tx).
type Session interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}
