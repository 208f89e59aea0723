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
	// Each is called for every row, by methods of Tx; otherwise To is where the row goes, if there is
	// one, and Found is set to true then, unless it is nil. A query with neither must return no rows.
	Each  func(scan func(to ...any) error) error
	To    []any
	Found *bool
	// Kept: the text is one of a few, and the statement so quick that the context need not end
	// it. SQLite compiles it once for each connection.
	Kept bool
}

// reads reports whether a query returns rows.
func (q *Query) reads() bool { return q.Each != nil || q.To != nil }

// take takes a row.
func (q *Query) take(scan func(to ...any) error) error {
	if q.Each != nil {
		return q.Each(scan)
	}
	if q.Found != nil {
		*q.Found = true
	}
	return scan(q.To...)
}

// A Session is where statements run: a pool (*sql.DB), one connection of it (*sql.Conn) or a
// transaction (*sql.Tx).
type Session interface {
	ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, text string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, text string, args ...any) *sql.Row
}
