package oracletest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Fake is a fake: a driver that notes what is sent to it and answers what a
// test says. It shows how the dialect makes use of a driver, and nothing
// about Oracle.
type Fake struct {
	// Answer is asked for every statement, and for the texts below, by every
	// goroutine that uses a connection.
	Answer func(text string) (Answer, error)

	mu    sync.Mutex
	Calls []Call
	conns int
}

// What a Fake notes, beside statements.
const (
	Connect  = "(connect)"
	Begin    = "(begin)"
	Commit   = "(commit)"
	Rollback = "(rollback)"
)

// A Call is what was sent on one of the connections.
type Call struct {
	Conn int
	Text string
	Args []driver.NamedValue
}

// An Answer is what a call returns.
type Answer struct {
	Rows    [][]driver.Value
	Changed int64
	Out     []any // for OUT parameters, in order
}

// An Error is an error as Oracle's driver has them.
type Error struct {
	Number int
	Text   string
}

func (e *Error) Error() string { return e.Text }
func (e *Error) Code() int     { return e.Number }

// OraError is ORA-xxxxx.
func OraError(code int) error {
	return &Error{code, fmt.Sprintf("ORA-%05d: as the test asked", code)}
}

func (f *Fake) ask(conn int, text string, args []driver.NamedValue) (Answer, error) {
	f.mu.Lock()
	f.Calls = append(f.Calls, Call{conn, text, args})
	f.mu.Unlock()
	if f.Answer == nil {
		return Answer{}, nil
	}
	return f.Answer(text)
}

// Texts are what was noted, in order.
func (f *Fake) Texts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var texts []string
	for _, c := range f.Calls {
		texts = append(texts, c.Text)
	}
	return texts
}

// Statements are the calls that are statements.
func (f *Fake) Statements() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.Calls), func(c Call) bool { return strings.HasPrefix(c.Text, "(") })
}

// Connect implements driver.Connector.
func (f *Fake) Connect(context.Context) (driver.Conn, error) {
	f.mu.Lock()
	f.conns++
	conn := &fakeConn{f, f.conns}
	f.mu.Unlock()
	if _, err := f.ask(conn.number, Connect, nil); err != nil {
		return nil, err
	}
	return conn, nil
}

// Driver implements driver.Connector.
func (f *Fake) Driver() driver.Driver { return fakeDriver{} }

type fakeDriver struct{}

func (fakeDriver) Open(string) (driver.Conn, error) { return nil, errors.New("not by name") }

type fakeConn struct {
	oracle *Fake
	number int
}

func (c *fakeConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("a round trip more") }
func (c *fakeConn) Close() error                        { return nil }
func (c *fakeConn) Begin() (driver.Tx, error)           { return nil, errors.New("without a context") }

func (c *fakeConn) BeginTx(_ context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o != (driver.TxOptions{}) {
		return nil, fmt.Errorf("options %v: READ COMMITTED is the default", o)
	}
	_, err := c.oracle.ask(c.number, Begin, nil)
	return fakeTx{c}, err
}

type fakeTx struct{ conn *fakeConn }

func (t fakeTx) Commit() error {
	_, err := t.conn.oracle.ask(t.conn.number, Commit, nil)
	return err
}

func (t fakeTx) Rollback() error {
	_, err := t.conn.oracle.ask(t.conn.number, Rollback, nil)
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
	return driver.RowsAffected(a.Changed), fillOut(args, a.Out)
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
		case *[]byte:
			*to = values[0].([]byte)
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
	return &fakeRows{a.Rows}, nil
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
