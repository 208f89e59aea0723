package sqlstore

import (
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/test/oracletest"
)

// oracleStore is a DB over a fake.
func oracleStore(t *testing.T, f *oracletest.Fake) *DB {
	t.Helper()
	db := &DB{dialect: oracleDialect(), sql: sqldb.Over(sqldb.Oracle, f, sqldb.Config{Errors: storeError})}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}
