//go:build godror && cgo

package sqldb

import (
	"database/sql/driver"
	"time"

	"github.com/godror/godror"
	"github.com/godror/godror/dsn"
)

// oracleConnector makes connections by godror, which loads Oracle Instant Client
// when it connects for the first time.
func oracleConnector(a oracleAddress) (driver.Connector, error) {
	var p dsn.ConnectionParams
	p.Username, p.Password, p.ConnectString = a.user, dsn.NewPassword(a.password), a.connect
	// database/sql keeps the pool.
	p.StandaloneConnection = dsn.Bool(true)
	// A zone that is given saves the driver from asking for it; it matters to nothing
	// here, as times cross as text. Texts are compared byte by byte, as indexes do,
	// whatever the environment says.
	p.Timezone = time.UTC
	p.SetSessionParamOnInit("TIME_ZONE", "UTC")
	p.SetSessionParamOnInit("NLS_COMP", "BINARY")
	p.SetSessionParamOnInit("NLS_SORT", "BINARY")
	p.SetSessionParamOnInit("NLS_NUMERIC_CHARACTERS", ".,") // of amounts that cross as text
	if a.relaxed {
		p.SetSessionParamOnInit("COMMIT_LOGGING", "BATCH")
		p.SetSessionParamOnInit("COMMIT_WAIT", "NOWAIT")
	}
	return godror.NewConnector(p), nil
}
