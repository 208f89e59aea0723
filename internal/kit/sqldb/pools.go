package sqldb

import (
	"database/sql"
	"database/sql/driver"
)

// A source is a database to connect to.
type source struct {
	shown string // for people: without a password
	// open fills in the connections of a DB, and what goes with them.
	open func(db *DB) error
}

// onePool reads and writes on the same connections.
func (db *DB) onePool(c driver.Connector, config Config) {
	db.Write = newPool(c, config)
	db.Read = db.Write
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
