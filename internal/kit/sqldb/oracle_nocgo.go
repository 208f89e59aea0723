//go:build godror && !cgo

package sqldb

import "database/sql/driver"

// Without cgo the driver would be left out without a word; this stops the build.
func oracleConnector(oracleAddress) (driver.Connector, error) {
	return oracle_needs_CGO_ENABLED_1_for_the_tag_godror
}
