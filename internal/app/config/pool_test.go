package config

import (
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// TestPoolsHaveTheDefaultsOfDatabases: settings name them again, because settings know no database.
func TestPoolsHaveTheDefaultsOfDatabases(t *testing.T) {
	if defaultPoolMin != sqldb.DefaultPoolMin || defaultPoolMax != sqldb.DefaultPoolMax {
		t.Errorf("pools of %d to %d connections, and sqldb has %d to %d", defaultPoolMin, defaultPoolMax, sqldb.DefaultPoolMin, sqldb.DefaultPoolMax)
	}
}
