package sqlstore

import (
	"regexp"
	"testing"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/slots/internal/slotstest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// oracleDrops empty a schema of what is headgate's.
var oracleDrops = []string{
	"DROP PACKAGE RL_SLOT_API", "DROP FUNCTION RL_NOW", "DROP FUNCTION RL_TS", "DROP FUNCTION RL_TXT",
	"DROP FUNCTION RL_ADD_MS",
	"DROP TABLE RL_EVENT_WNDW_CONFIG", "DROP TABLE RL_WNDW_CT", "DROP TABLE RL_EVENT_SLOT_DTL",
	"DROP TABLE RL_WNDW_FRONTIER_TRK",
	"DROP TABLE RL_SLOT_CTL", "DROP TABLE RL_SCHEMA_HISTORY", "DROP TABLE RL_SCHEMA_LOCK",
}

// emptyOracle returns the address of a real Oracle, whose schema it empties.
func emptyOracle(t *testing.T) string {
	t.Helper()
	url := testenv.RequireDSN(t, testenv.Oracle)
	db := mustOpen(t, url)
	for _, drop := range oracleDrops {
		if _, err := db.sql.Write.ExecContext(soon(t), drop); err != nil &&
			!regexp.MustCompile(`ORA-00942|ORA-04043`).MatchString(err.Error()) {
			t.Fatalf("%s: %v", drop, err)
		}
	}
	return url
}

// The whole suite on a real Oracle, both engines, where there is one.
func TestRealOracleSlots(t *testing.T) {
	testenv.RequireDSN(t, testenv.Oracle)
	slotstest.Run(t, slotstest.Harness{Name: "oracle", Fresh: func(t *testing.T) slotstest.Database {
		url := emptyOracle(t)
		return slotstest.Database{URL: url, Open: func(t *testing.T) slots.Store { return migrated(t, url) }}
	}})
}

// On a real Oracle both engines give the same answers.
func TestRealOracleEnginesAgree(t *testing.T) {
	db := migrated(t, emptyOracle(t))
	sameAnswers(t, db, db.Procedure(), 40)
}

// A schema that is up to date is not changed.
func TestRealOracleMigratesOnce(t *testing.T) {
	db := migrated(t, emptyOracle(t))
	if applied, err := db.Migrate(soon(t)); err != nil || len(applied) > 0 {
		t.Errorf("applied %q again, %v", applied, err)
	}
}
