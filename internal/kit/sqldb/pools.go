package sqldb

import (
	"database/sql"
	"database/sql/driver"
)

// A source is a database to connect to.
type source struct {
	shown string // for people: without a password
	open  func() (pools, error)
}

// pools are connections. They are the same one unless reading and writing want
// different connections.
type pools struct {
	read, write *sql.DB
	release     func() error // what else is to be closed, or nil
	// opening are statements that a pipelined transaction begins with, where sessions cannot be
	// set up; nil means none.
	opening func() []Query
	// returning reports whether INSERT … ON DUPLICATE KEY UPDATE … RETURNING is there; nil: no.
	returning func() bool
}

// onePool reads and writes on the same connections.
func onePool(c driver.Connector, config Config) pools {
	db := newPool(c, config)
	return pools{read: db, write: db}
}

// newPool applies the limits of a Config.
func newPool(c driver.Connector, config Config) *sql.DB {
	config = config.withDefaults()
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(config.PoolMax)
	// Connections beyond PoolMin end by maxIdle instead: to open and close them
	// under changing load would cost more than to keep them.
	db.SetMaxIdleConns(config.PoolMax)
	db.SetConnMaxIdleTime(maxIdle)
	db.SetConnMaxLifetime(maxLife)
	return db
}
