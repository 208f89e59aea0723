package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
)

// SQLite compiles a text each time that it runs, which takes longer than most statements do.
// Those that are Kept are compiled once for each connection.

// sqliteKept bounds how many statements a connection keeps: a text beyond that is compiled each time.
const sqliteKept = 128

// keptKey marks the context of a statement that is Kept.
type keptKey struct{}

// running is the context in which a query runs.
func (q Query) running(ctx context.Context) context.Context {
	if !q.Kept {
		return ctx
	}
	return context.WithValue(ctx, keptKey{}, true)
}

// sqliteConnector makes connections that keep statements.
type sqliteConnector struct {
	driver.Connector
	file *sqliteFile
	// immutable, unless it is nil, connects instead while no process writes the file; see [openSQLiteToRead].
	immutable driver.Connector
}

// Connect implements driver.Connector.
func (c sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	from, state := c.Connector, ""
	if c.immutable != nil && !c.file.written() {
		from, state = c.immutable, c.file.state()
	}
	conn, err := from.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := conn.(sqliteSession)
	if !ok {
		return nil, errors.Join(errors.New("the driver of sqlite lacks a method"), conn.Close())
	}
	return &sqliteConn{sqliteSession: whole, kept: make(map[string]*sqliteStatement), file: c.file,
		moved: c.file.check(), state: state}, nil
}

// sqliteSession is what database/sql may call of a connection.
type sqliteSession interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// sqliteConn is used by one goroutine at a time, as database/sql promises.
type sqliteConn struct {
	sqliteSession
	kept  map[string]*sqliteStatement
	file  *sqliteFile
	state string // of the file that is read as if nobody wrote it; empty: it is not
	moved error  // the file is another one: nothing is to be read or written
}

// A sqliteStatement is compiled. It has one set of rows at a time.
type sqliteStatement struct {
	sqliteStmt
	busy bool
}

// sqliteStmt is what the driver's statements can do.
type sqliteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// Close implements driver.Conn.
func (c *sqliteConn) Close() error {
	errs := []error{c.keepLog()}
	for _, s := range c.kept {
		errs = append(errs, s.Close())
	}
	clear(c.kept)
	return errors.Join(append(errs, c.sqliteSession.Close())...)
}

// statement returns the compiled text, or nil if it is not to be kept, or in use. After an error none is to run.
func (c *sqliteConn) statement(ctx context.Context, text string) (*sqliteStatement, error) {
	if c.moved != nil {
		return nil, c.moved
	}
	if ctx.Value(keptKey{}) == nil {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := c.kept[text]
	if s == nil && len(c.kept) < sqliteKept {
		stmt, err := c.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		s = &sqliteStatement{sqliteStmt: stmt.(sqliteStmt)}
		c.kept[text] = s
	}
	if s == nil || s.busy {
		return nil, nil
	}
	return s, nil
}

// ExecContext implements driver.ExecerContext.
func (c *sqliteConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, text)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return c.sqliteSession.ExecContext(ctx, text, args)
	}
	return s.ExecContext(context.Background(), args) // a context that can end would take a goroutine
}

// QueryContext implements driver.QueryerContext.
func (c *sqliteConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, text)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return c.sqliteSession.QueryContext(ctx, text, args)
	}
	rows, err := s.QueryContext(context.Background(), args)
	if err != nil {
		return nil, err
	}
	s.busy = true
	return &sqliteRows{rows, s}, nil
}

// sqliteRows are those of a statement that is kept.
type sqliteRows struct {
	driver.Rows
	of *sqliteStatement
}

// Close implements driver.Rows.
func (r *sqliteRows) Close() error {
	r.of.busy = false
	return r.Rows.Close()
}
