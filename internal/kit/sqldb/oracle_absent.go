//go:build !godror

package sqldb

import (
	"database/sql/driver"
	"errors"
)

// oracleConnector is there in programs that are built with Oracle's driver.
func oracleConnector(oracleAddress) (driver.Connector, error) {
	return nil, errors.New("built without Oracle: take a release, or an image, whose name has -oracle, or build the " +
		"program with CGO_ENABLED=1 go build -tags godror; either needs Oracle Instant Client where it runs")
}
