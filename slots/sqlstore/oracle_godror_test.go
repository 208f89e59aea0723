//go:build godror && cgo

package sqlstore

import (
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/slots"
)

// The real driver: without Oracle's client library nothing is ready and the error
// says what to install; with it, nobody listens at this address.
func TestOracleDriver(t *testing.T) {
	c := Config{URL: "jdbc:oracle:thin:@127.0.0.1:1/ORCLPDB1", Username: "rate_limiter", Password: "hunter2"}
	if a, err := Parse(c); err != nil || a != (Address{"oracle", "oracle://127.0.0.1:1/ORCLPDB1"}) {
		t.Fatalf("address %+v, %v", a, err)
	}
	db, err := Open(c)
	check(t, err)
	defer func() { check(t, db.Close()) }()
	for name, err := range map[string]error{"ping": db.Ping(soon(t)), "claim": claimOne(db), "migrate": migrateError(t, db)} {
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error has the password: %v", name, err)
		}
		switch kind := slots.KindOf(err); {
		case strings.Contains(err.Error(), "DPI-1047"):
			if kind != slots.Failed || !strings.Contains(err.Error(), "install Oracle Instant Client") {
				t.Errorf("%s: %v is %v, want it failed, with advice", name, err, kind)
			}
		case kind != slots.Unavailable:
			t.Errorf("%s: %v is %v, want unavailable", name, err, kind)
		}
	}
}

func migrateError(t *testing.T, db *DB) error {
	_, err := db.Migrate(soon(t))
	return err
}
