package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-rls/headgate/internal/sqldb"
)

// fakeOracle is a fake: a driver that notes what is sent to it and answers what a
// test tells it to. It shows how the dialect makes use of a driver, and nothing
// about Oracle.
type fakeOracle struct {
	// answer is asked for every statement, and for the texts below.
	answer func(text string) (fakeAnswer, error)

	mu    sync.Mutex
	calls []fakeCall
	conns int
}

// What a fakeOracle notes, beside statements.
const (
	fakeConnect  = "(connect)"
	fakeBegin    = "(begin)"
	fakeCommit   = "(commit)"
	fakeRollback = "(rollback)"
)

type fakeCall struct {
	conn int
	text string
	args []driver.NamedValue
}

type fakeAnswer struct {
	rows    [][]driver.Value
	changed int64
	out     []any // for OUT parameters, in order
}

// fakeError is an error as Oracle's driver has them.
type fakeError struct {
	code int
	text string
}

func (e *fakeError) Error() string { return e.text }
func (e *fakeError) Code() int     { return e.code }

// oraError is ORA-xxxxx.
func oraError(code int) error {
	return &fakeError{code, fmt.Sprintf("ORA-%05d: as the test asked", code)}
}

// store is a DB over the fake.
func (f *fakeOracle) store(t *testing.T) *DB {
	t.Helper()
	pool := sql.OpenDB(f)
	pool.SetMaxOpenConns(sqldb.DefaultPoolMax)
	pool.SetMaxIdleConns(sqldb.DefaultPoolMax)
	db := &DB{dialect: oracleDialect(), sql: &sqldb.DB{Dialect: sqldb.Oracle, Read: pool, Write: pool, Log: slog.New(slog.DiscardHandler)}}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

func (f *fakeOracle) ask(conn int, text string, args []driver.NamedValue) (fakeAnswer, error) {
	f.mu.Lock()
	f.calls = append(f.calls, fakeCall{conn, text, args})
	f.mu.Unlock()
	if f.answer == nil {
		return fakeAnswer{}, nil
	}
	return f.answer(text)
}

// texts are what was noted, in order.
func (f *fakeOracle) texts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []string
	for _, c := range f.calls {
		texts = append(texts, c.text)
	}
	return texts
}

// statements are the calls that are statements.
func (f *fakeOracle) statements() []fakeCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c fakeCall) bool { return strings.HasPrefix(c.text, "(") })
}

// Connect implements driver.Connector.
func (f *fakeOracle) Connect(context.Context) (driver.Conn, error) {
	f.mu.Lock()
	f.conns++
	conn := &fakeConn{f, f.conns}
	f.mu.Unlock()
	if _, err := f.ask(conn.number, fakeConnect, nil); err != nil {
		return nil, err
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (f *fakeOracle) Driver() driver.Driver { return fakeDriver{} }

type fakeDriver struct{}

func (fakeDriver) Open(string) (driver.Conn, error) { return nil, errors.New("not by name") }

type fakeConn struct {
	oracle *fakeOracle
	number int
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("a round trip more") }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, errors.New("without a context") }

func (c *fakeConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o != (driver.TxOptions{}) {
		return nil, fmt.Errorf("options %v: READ COMMITTED is the default", o)
	}
	_, err := c.oracle.ask(c.number, fakeBegin, nil)
	return fakeTx{c}, err
}

type fakeTx struct{ conn *fakeConn }

func (t fakeTx) Commit() error {
	_, err := t.conn.oracle.ask(t.conn.number, fakeCommit, nil)
	return err
}

func (t fakeTx) Rollback() error {
	_, err := t.conn.oracle.ask(t.conn.number, fakeRollback, nil)
	return err
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *fakeConn) CheckNamedValue(v *driver.NamedValue) (err error) {
	if _, ok := v.Value.(sql.Out); ok {
		return nil
	}
	v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	return err
}

func (c *fakeConn) ExecContext(_ context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	a, err := c.oracle.ask(c.number, text, args)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(a.changed), fillOut(args, a.out)
}

// fillOut sets OUT parameters.
func fillOut(args []driver.NamedValue, values []any) error {
	for _, arg := range args {
		out, ok := arg.Value.(sql.Out)
		if !ok {
			continue
		}
		if len(values) == 0 {
			return errors.New("there are more OUT parameters than the test named")
		}
		switch to := out.Dest.(type) {
		case *string:
			*to = values[0].(string)
		case *int64:
			*to = int64(values[0].(int))
		default:
			return fmt.Errorf("an OUT parameter of type %T", to)
		}
		values = values[1:]
	}
	if len(values) > 0 {
		return fmt.Errorf("there are %d OUT parameters fewer than the test named", len(values))
	}
	return nil
}

func (c *fakeConn) QueryContext(_ context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	a, err := c.oracle.ask(c.number, text, args)
	if err != nil {
		return nil, err
	}
	return &fakeRows{a.rows}, nil
}

type fakeRows struct{ left [][]driver.Value }

func (r *fakeRows) Columns() []string {
	if len(r.left) == 0 {
		return []string{"NONE"}
	}
	return make([]string, len(r.left[0]))
}
func (r *fakeRows) Close() error { return nil }
func (r *fakeRows) Next(to []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(to, r.left[0])
	r.left = r.left[1:]
	return nil
}
