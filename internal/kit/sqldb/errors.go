package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
)

// A Kind says what may be done about an Error.
type Kind int

// The kinds of Error.
const (
	// Failed: a retry will not help; an operator must act.
	Failed Kind = iota
	// Passing: a deadlock, a lost connection, a failover; a transaction may or may not
	// have taken effect. Trying again is right.
	Passing
	// Duplicate: a row with this key is there already, or is about to be. Error.Index names
	// the index.
	Duplicate
	// Held: another transaction held a lock for too long.
	Held
	// Unavailable: the database cannot be reached, or has no connection or room to spare.
	Unavailable
)

func (k Kind) String() string {
	return [...]string{"failed", "passing", "duplicate", "held", "unavailable"}[k]
}

// An Error is what methods of DB return, unless the caller's context has ended. Its text
// never holds a password.
type Error struct {
	Kind Kind
	Op   string // what was being done, such as "read a row"
	// of a Duplicate: the index, constraint or TABLE.COLUMN as the database spells it; empty if it does
	// not say
	Index string
	// Declined: the database answers, and has undone this transaction only: a deadlock, a lock that was
	// not to be had, no room for what it would write.
	Declined bool
	// Schema: a table or another part of the schema is not there. Migrating helps.
	Schema bool
	// ReadOnly: the database takes no writes at the moment, such as a replica.
	ReadOnly bool
	Err      error
}

func (e *Error) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an Error; Failed for other errors.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Failed
}

// NoSchema reports whether an error means that a table or another part of the schema is not there.
func NoSchema(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Schema
}

// IsReadOnly reports whether an error means that the database takes no writes.
func IsReadOnly(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.ReadOnly
}

// A failure is what an error of a driver means.
type failure struct {
	kind  Kind
	index string // of a Duplicate, as far as it is known
	// undone: the database says that it failed, and so does the transaction: its commit, if it was
	// sent along, is not done.
	undone bool
	full   bool // there is no room for what would be written
	schema bool // a table or another part of the schema is not there
	// readOnly: the database takes no writes
	readOnly bool
	// stale: other idle connections are of no use either, as after a failover.
	stale bool
}

// declined reports whether the database may well carry out other transactions.
func (f *failure) declined() bool {
	return f.undone && !f.schema && !f.stale && (f.full || f.kind != Unavailable)
}

func duplicate(index string) failure { return failure{kind: Duplicate, index: index} }

// lost classifies the errors of connections, which are the same for all drivers.
func lost(err error) (failure, bool) {
	network, ok := errors.AsType[*net.OpError](err)
	switch {
	case errors.As(err, new(*net.DNSError)), ok && network.Op == "dial":
		return failure{kind: Unavailable}, true
	case ok:
		return failure{kind: Passing}, true
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// Not the caller's: connecting took too long.
		return failure{kind: Unavailable}, true
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return failure{kind: Passing}, true
	}
	return failure{}, false
}

// afterLast returns the text after the last separator, or "" if s has no separator.
func afterLast(s, separator string) string {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[i+len(separator):]
	}
	return ""
}
