package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
)

// What codes mean that real servers do not give when asked.
func TestCodesAreClassified(t *testing.T) {
	postgres := func(code, constraint string) error {
		return &pgconn.PgError{Code: code, ConstraintName: constraint, Message: "cached plan must not change result type"}
	}
	maria := func(code uint16, message string) error { return &mysql.MySQLError{Number: code, Message: message} }
	for _, c := range []struct {
		dialect *Dialect
		err     error
		want    Kind
		stale   bool
	}{
		{Postgres, postgres("23505", "rl_event_slot_dtl_iux"), Duplicate, false},
		{Postgres, postgres("23505", "rl_event_slot_dtl_pk"), Duplicate, false},
		{Postgres, postgres("23505", "rl_event_wndw_config_iux"), Duplicate, false},
		{Postgres, postgres("40001", ""), Passing, false},
		{Postgres, postgres("40P01", ""), Passing, false},
		{Postgres, postgres("08006", ""), Passing, true},
		{Postgres, postgres("57P01", ""), Passing, true},
		{Postgres, postgres("57P03", ""), Unavailable, false},
		{Postgres, postgres("53300", ""), Unavailable, false},
		{Postgres, postgres("25006", ""), Passing, true},
		{Postgres, postgres("0A000", ""), Passing, false},
		{Postgres, postgres("42P01", ""), Failed, false},
		{Postgres, postgres("28P01", ""), Failed, false},
		{Postgres, errors.New("whatever"), Failed, false},
		{MySQL, maria(1062, "Duplicate entry 'x' for key 'RL_EVENT_SLOT_DTL.RL_EVENT_SLOT_DTL_IUX'"), Duplicate, false},
		{MySQL, maria(1062, "Duplicate entry 'x' for key 'RL_EVENT_SLOT_DTL_IUX'"), Duplicate, false},
		{MySQL, maria(1062, "Duplicate entry 'for key 'RL_EVENT_SLOT_DTL_IUX'' for key 'PRIMARY'"), Duplicate, false},
		{MySQL, maria(1062, "Duplicate entry 'x' for key 'RL_EVENT_WNDW_CONFIG_IUX'"), Duplicate, false},
		{MySQL, maria(1213, ""), Passing, false},
		{MySQL, maria(1205, ""), Held, false},
		{MySQL, maria(1020, ""), Passing, false},
		{MySQL, maria(1290, ""), Passing, true},
		{MySQL, maria(1053, ""), Passing, true},
		{MySQL, maria(1836, ""), Passing, true},
		{MySQL, maria(3100, "Error on observer while running replication hook 'before_commit'."), Passing, true},
		{MySQL, maria(3101, "Plugin instructed the server to rollback the current transaction."), Passing, false},
		{MySQL, maria(1047, "WSREP has not yet prepared node for application use"), Passing, true},
		{MySQL, maria(1047, "Unknown command"), Failed, false},
		{MySQL, maria(4031, ""), Passing, true},
		{MySQL, maria(1969, ""), Held, false},
		{MySQL, maria(1180, "Got error 28 during COMMIT"), Unavailable, false},
		{MySQL, maria(1045, ""), Failed, false},
		{Postgres, postgres("57014", ""), Held, false},
		{Postgres, postgres("57P05", ""), Passing, true},
		{Postgres, postgres("58030", ""), Unavailable, false},
		{MySQL, maria(1040, ""), Unavailable, false},
		{MySQL, maria(1114, "The table 'T' is full"), Unavailable, false},
		{MySQL, maria(1146, ""), Failed, false},
		{MySQL, maria(1406, ""), Failed, false},
		{MySQL, fmt.Errorf("read: %w", mysql.ErrInvalidConn), Passing, false},
		{MySQL, errors.New("whatever"), Failed, false},
		{SQLite, errors.New("whatever"), Failed, false},
	} {
		if got := c.dialect.classify(fmt.Errorf("wrapped: %w", c.err)); got.kind != c.want || got.stale != c.stale {
			t.Errorf("%s: %v is %v (stale %v), want %v (%v)", c.dialect.Name, c.err, got.kind, got.stale, c.want, c.stale)
		}
	}
}

// The driver does not export this one.
func TestBadConnectionIsPassing(t *testing.T) {
	if got := classifyMySQL(errors.New("bad connection")); got.kind != Passing {
		t.Errorf("kind %v", got.kind)
	}
}

// Errors of connections are the same for all drivers, and those of the caller's
// context stay what they are.
func TestFailKeepsErrorsOfTheContext(t *testing.T) {
	db := mustOpen(t, Config{URL: "sqlite::memory:"})
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{driver.ErrBadConn, Passing},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, Unavailable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, Passing},
		{&net.DNSError{Err: "no such host"}, Unavailable},
		{context.DeadlineExceeded, Unavailable}, // of connecting, not the caller's
		{&Error{Kind: Duplicate, Err: errors.New("as it was")}, Duplicate},
	} {
		err := db.Fail(context.Background(), "op", fmt.Errorf("wrapped: %w", c.err))
		if KindOf(err) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v became %v (%v), want %v", c.err, err, KindOf(err), c.want)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	err := db.Fail(gone, "op", errors.New("whatever the driver says"))
	var store *Error
	if !errors.Is(err, context.Canceled) || errors.As(err, &store) {
		t.Errorf("a cancelled call gave %v", err)
	}
	if db.Fail(gone, "op", nil) != nil {
		t.Error("no error became one")
	}
}

// TestWhetherTheSchemaIsThere: migrating helps then, and not against a missing privilege or a wrong
// password.
func TestWhetherTheSchemaIsThere(t *testing.T) {
	for _, c := range []struct {
		dialect *Dialect
		err     error
		missing bool
	}{
		{Postgres, &pgconn.PgError{Code: "42P01"}, true},
		{Postgres, &pgconn.PgError{Code: "42703"}, true},
		{Postgres, &pgconn.PgError{Code: "42501"}, false},
		{Postgres, &pgconn.PgError{Code: "28P01"}, false},
		{MySQL, &mysql.MySQLError{Number: 1146}, true},
		{MySQL, &mysql.MySQLError{Number: 1045}, false},
		{MySQL, &mysql.MySQLError{Number: 1142}, false},
		{Oracle, &oracleError{942, "ORA-00942: table or view does not exist"}, true},
		{Oracle, &oracleError{1017, "ORA-01017: invalid username/password"}, false},
	} {
		if got := c.dialect.classify(c.err); got.schema != c.missing || got.kind != Failed {
			t.Errorf("%s: %v: %v", c.dialect.Name, c.err, got.schema)
		}
	}
}
