package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/headgate-rls/headgate/slots"
	"github.com/jackc/pgx/v5/pgconn"
)

// What codes mean that real servers do not give when asked.
func TestClassify(t *testing.T) {
	postgres := func(code, constraint string) error {
		return &pgconn.PgError{Code: code, ConstraintName: constraint, Message: "cached plan must not change result type"}
	}
	maria := func(code uint16, message string) error { return &mysql.MySQLError{Number: code, Message: message} }
	for _, c := range []struct {
		dialect *dialect
		err     error
		want    slots.Kind
		stale   bool
	}{
		{postgresDialect(), postgres("23505", "rl_event_slot_dtl_iux"), slots.Duplicate, false},
		{postgresDialect(), postgres("23505", "rl_event_slot_dtl_pk"), slots.Passing, false},
		{postgresDialect(), postgres("23505", "rl_event_wndw_config_iux"), slots.Passing, false},
		{postgresDialect(), postgres("40001", ""), slots.Passing, false},
		{postgresDialect(), postgres("40P01", ""), slots.Passing, false},
		{postgresDialect(), postgres("08006", ""), slots.Passing, true},
		{postgresDialect(), postgres("57P01", ""), slots.Passing, true},
		{postgresDialect(), postgres("57P03", ""), slots.Unavailable, false},
		{postgresDialect(), postgres("53300", ""), slots.Unavailable, false},
		{postgresDialect(), postgres("25006", ""), slots.Passing, true},
		{postgresDialect(), postgres("0A000", ""), slots.Passing, false},
		{postgresDialect(), postgres("42P01", ""), slots.Failed, false},
		{postgresDialect(), postgres("28P01", ""), slots.Failed, false},
		{postgresDialect(), errors.New("whatever"), slots.Failed, false},
		{mysqlDialect(), maria(1062, "Duplicate entry 'x' for key 'RL_EVENT_SLOT_DTL.RL_EVENT_SLOT_DTL_IUX'"), slots.Duplicate, false},
		{mysqlDialect(), maria(1062, "Duplicate entry 'x' for key 'RL_EVENT_SLOT_DTL_IUX'"), slots.Duplicate, false},
		{mysqlDialect(), maria(1062, "Duplicate entry 'for key 'RL_EVENT_SLOT_DTL_IUX'' for key 'PRIMARY'"), slots.Passing, false},
		{mysqlDialect(), maria(1062, "Duplicate entry 'x' for key 'RL_EVENT_WNDW_CONFIG_IUX'"), slots.Passing, false},
		{mysqlDialect(), maria(1213, ""), slots.Passing, false},
		{mysqlDialect(), maria(1205, ""), slots.Held, false},
		{mysqlDialect(), maria(1020, ""), slots.Passing, false},
		{mysqlDialect(), maria(1290, ""), slots.Passing, true},
		{mysqlDialect(), maria(1836, ""), slots.Passing, true},
		{mysqlDialect(), maria(1053, ""), slots.Passing, true},
		{mysqlDialect(), maria(1040, ""), slots.Unavailable, false},
		{mysqlDialect(), maria(1146, ""), slots.Failed, false},
		{mysqlDialect(), maria(1406, ""), slots.Failed, false},
		{mysqlDialect(), fmt.Errorf("read: %w", mysql.ErrInvalidConn), slots.Passing, false},
		{mysqlDialect(), errors.New("whatever"), slots.Failed, false},
		{sqliteDialect(), errors.New("whatever"), slots.Failed, false},
	} {
		if got := c.dialect.classify(fmt.Errorf("wrapped: %w", c.err)); got.kind != c.want || got.stale != c.stale {
			t.Errorf("%s: %v is %v (stale %v), want %v (%v)", c.dialect.name, c.err, got.kind, got.stale, c.want, c.stale)
		}
	}
}

// The driver does not export this one.
func TestUnsent(t *testing.T) {
	if got := classifyMySQL(errors.New("bad connection")); got.kind != slots.Passing {
		t.Errorf("kind %v", got.kind)
	}
}

// Errors of connections are the same for all drivers, and those of the caller's
// context stay what they are.
func TestFail(t *testing.T) {
	db := mustOpen(t, "sqlite::memory:")
	for _, c := range []struct {
		err  error
		want slots.Kind
	}{
		{driver.ErrBadConn, slots.Passing},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, slots.Unavailable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, slots.Passing},
		{&net.DNSError{Err: "no such host"}, slots.Unavailable},
		{context.DeadlineExceeded, slots.Unavailable}, // of connecting, not the caller's
		{&slots.StoreError{Kind: slots.Duplicate, Err: errors.New("as it was")}, slots.Duplicate},
	} {
		err := db.fail(context.Background(), "op", fmt.Errorf("wrapped: %w", c.err))
		if slots.KindOf(err) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%v became %v (%v), want %v", c.err, err, slots.KindOf(err), c.want)
		}
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	err := db.fail(gone, "op", errors.New("whatever the driver says"))
	var store *slots.StoreError
	if !errors.Is(err, context.Canceled) || errors.As(err, &store) {
		t.Errorf("a cancelled call gave %v", err)
	}
	if db.fail(gone, "op", nil) != nil {
		t.Error("no error became one")
	}
}
