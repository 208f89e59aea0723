package sqlstore

import (
	"slices"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// Config says which database to use, and how.
type Config = sqldb.Config

// Open returns the Store of a database. It does not connect: a database that is
// down is noticed by Ping and by the next call. An error means that
// the Config is wrong. Close must be called.
func Open(c Config) (*DB, error) {
	db, err := sqldb.Open(c)
	if err != nil {
		return nil, err
	}
	return &DB{dialect: dialectOf(db.Dialect), sql: db, hang: newHang()}, nil
}

// dialects are all that there are.
func dialects() []*dialect {
	return []*dialect{sqliteDialect(), postgresDialect(), mysqlDialect(), oracleDialect()}
}

// dialectOf returns what slots need of a database.
func dialectOf(d *sqldb.Dialect) *dialect {
	all := dialects()
	return all[slices.IndexFunc(all, func(of *dialect) bool { return of.Dialect == d })]
}
