package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// An oracleError is as the driver has them.
type oracleError struct {
	code int
	text string
}

func (e *oracleError) Error() string { return e.text }
func (e *oracleError) Code() int     { return e.code }

// oraError is ORA-xxxxx.
func oraError(code int) error {
	return &oracleError{code, fmt.Sprintf("ORA-%05d: as the test asked", code)}
}

// ORA-00001 names the index.
func TestOracleDuplicates(t *testing.T) {
	for _, index := range []string{"OWNER.T_IUX", "T_IUX"} {
		text := "ORA-00001: unique constraint (" + index + ") violated"
		for _, text := range []string{text, text + " on table OWNER.T columns (EVENT_ID)",
			"dpiStmt_execute(mode=32 arrLen=-1): " + text + "\nORA-06512: at \"OWNER.AN_API\", line 12 (X)"} {
			if got := oracleClassify(&oracleError{1, text}); got != (failure{kind: Duplicate, index: "T_IUX", undone: true}) {
				t.Errorf("%s: %+v", text, got)
			}
		}
	}
	if f := oracleClassify(&oracleError{1, "ORA-00001: in no known words"}); f.kind != Failed {
		t.Errorf("without an index: %v, want failed", f.kind)
	}
}

// Errors of the client library have the code zero.
func TestOracleClientErrors(t *testing.T) {
	for text, want := range map[string]failure{
		"ORA-00000: DPI-1010: not connected":                                       {kind: Passing},
		"ORA-00000: DPI-1067: call timeout of 1000 ms exceeded with ORA-3136":      {kind: Passing},
		"ORA-00000: DPI-1080: connection was closed by ORA-03113":                  {kind: Passing},
		"ORA-00000: DPI-1080: connection was closed by ORA-01089":                  {kind: Unavailable, stale: true},
		"ORA-00000: DPI-1047: Cannot locate a 64-bit Oracle Client library: \"l\"": {},
		"ORA-00000: DPI-1043: invalid number":                                      {},
		"something else entirely":                                                  {},
	} {
		if got := oracleClassify(&oracleError{0, text}); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if got := oracleClassify(fmt.Errorf("wrapped: %w", &oracleError{0, text})); got != want {
			t.Errorf("wrapped %s: %+v, want %+v", text, got, want)
		}
	}
}

// dpi1047 is what the driver says without a client library.
const dpi1047 = `ORA-00000: DPI-1047: Cannot locate a 64-bit Oracle Client library: "libclntsh.so: ` +
	`cannot open shared object file: No such file or directory". ` +
	`See https://oracle.github.io/odpi/doc/installation.html#linux for help`

// A missing client library is nothing to try again, and the error says what to do.
func TestOracleWithoutClient(t *testing.T) {
	db := Over(Oracle, oracleConnection{noClient{}}, Config{})
	defer db.Close()
	_, err := db.Row(t.Context(), db.Read, "read", Query{Text: "SELECT 1 FROM DUAL"})
	if err == nil || KindOf(err) != Failed || !strings.Contains(err.Error(), "install Oracle Instant Client") {
		t.Errorf("%v, want it failed, with advice", err)
	}
}

// noClient connects as the driver does without a client library.
type noClient struct{ driver.Connector }

func (noClient) Connect(context.Context) (driver.Conn, error) { return nil, &oracleError{0, dpi1047} }
func (noClient) Driver() driver.Driver                        { return nil }

// A database that starts, stops or is a standby has idle connections dropped.
func TestOracleStale(t *testing.T) {
	for _, code := range []int{1033, 1034, 1089, 1090, 16000} {
		if f := oracleClassify(oraError(code)); !f.stale {
			t.Errorf("ORA-%05d: %+v, want it stale", code, f)
		}
	}
	if f := oracleClassify(oraError(60)); f.stale {
		t.Error("a deadlock says nothing about other connections")
	}
}

// What an error holds of wrapped ones is found by its code.
func TestOracleCodeWrapped(t *testing.T) {
	if got := oracleCode(errors.Join(errors.New("x"), fmt.Errorf("y: %w", oraError(955)))); got != 955 {
		t.Errorf("code %d, want 955", got)
	}
}
