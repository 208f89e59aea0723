//go:build godror && cgo

package sqldb

import (
	"strings"
	"testing"
)

// The real driver: without Oracle's client library nothing is ready and the error
// says what to install; with it, nobody listens at this address.
func TestOracleDriver(t *testing.T) {
	c := Config{URL: "jdbc:oracle:thin:@127.0.0.1:1/ORCLPDB1", Username: "rate_limiter", Password: "hunter2"}
	db, err := Open(c)
	check(t, err)
	if db.Dialect != Oracle || db.Address != "oracle://127.0.0.1:1/ORCLPDB1" {
		t.Fatalf("address %+v", db.Address)
	}
	defer func() { check(t, db.Close()) }()
	_, ping := db.Row(soon(t), db.Read, "ping", Query{Text: "SELECT 1 FROM DUAL"})
	_, begin := db.Begin(soon(t), "begin")
	for name, err := range map[string]error{"ping": ping, "begin": begin} {
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
		switch kind := KindOf(err); {
		case strings.Contains(err.Error(), "DPI-1047"):
			if kind != Failed || !strings.Contains(err.Error(), "install Oracle Instant Client") {
				t.Errorf("%s: %v is %v, want it failed, with advice", name, err, kind)
			}
		case kind != Unavailable:
			t.Errorf("%s: %v is %v, want unavailable", name, err, kind)
		}
	}
}
