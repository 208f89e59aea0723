package config

import (
	"testing"

	"github.com/headgate-rls/headgate/internal/kit/settings"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// TestPoolsHaveTheDefaultsOfDatabases: settings name them again, because settings know no database.
func TestPoolsHaveTheDefaultsOfDatabases(t *testing.T) {
	if settings.PoolMin != sqldb.DefaultPoolMin || settings.PoolMax != sqldb.DefaultPoolMax {
		t.Errorf("pools of %d to %d connections, and sqldb has %d to %d", settings.PoolMin, settings.PoolMax,
			sqldb.DefaultPoolMin, sqldb.DefaultPoolMax)
	}
}
