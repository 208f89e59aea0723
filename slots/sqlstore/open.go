package sqlstore

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// Config says which database to use, and how.
type Config struct {
	// URL of the database:
	//
	//	sqlite:PATH, sqlite::memory:         PATH may end in ?synchronous=normal
	//	postgres://user:password@host:5432/database?parameters
	//	mysql://user:password@host:3306/database?parameters, also mariadb://
	//	oracle://user:password@host:1521/service
	//
	// or as Java writes them: jdbc:postgresql:, jdbc:mysql:, jdbc:mariadb:,
	// jdbc:oracle:thin:@host:1521/SERVICE.
	URL string
	// Username and Password, unless empty, are used instead of those in the URL.
	Username, Password string
	// PoolMin connections are kept open, and at most PoolMax are opened.
	// Zero: DefaultPoolMin and DefaultPoolMax.
	PoolMin, PoolMax int
	// Log gets a line for each migration; nil: none.
	Log *slog.Logger
}

// Defaults of a Config.
const (
	DefaultPoolMin = 5
	DefaultPoolMax = 30
)

// maxIdle bounds how long a connection that nobody uses stays open, if there are
// more than PoolMin; maxLife how long any does, so that a change of
// address or of servers behind it is noticed.
const (
	maxIdle = 5 * time.Minute
	maxLife = 30 * time.Minute
)

// dialTimeout bounds one attempt to connect.
const dialTimeout = 5 * time.Second

// Address is what a URL says.
type Address struct {
	Dialect string // such as "postgres"
	Shown   string // the address without a password, for logs
}

// Parse checks a Config without connecting. Errors name the field, and hold no
// password.
func Parse(c Config) (Address, error) {
	d, src, err := parse(c)
	if err != nil {
		return Address{}, err
	}
	return Address{d.name, src.shown}, nil
}

func parse(c Config) (*dialect, *source, error) {
	if c.PoolMin < 0 || c.PoolMax < 0 || (c.PoolMax > 0 && c.PoolMin > c.PoolMax) {
		return nil, nil, fmt.Errorf("database pool: want 0 <= min <= max, got min %d and max %d", c.PoolMin, c.PoolMax)
	}
	address := strings.TrimPrefix(c.URL, "jdbc:")
	scheme, _, found := strings.Cut(address, ":")
	if !found {
		return nil, nil, errors.New("database url: want a scheme, one of " + strings.Join(schemes(), ", ") +
			", such as postgres://host:5432/database")
	}
	for _, d := range dialects() {
		for _, s := range d.schemes {
			if s == scheme {
				src, err := d.parse(address, c)
				return d, src, err
			}
		}
	}
	return nil, nil, fmt.Errorf("database url: no database has the scheme %q; want one of %s", scheme, strings.Join(schemes(), ", "))
}

// schemes of all dialects.
func schemes() []string {
	var all []string
	for _, d := range dialects() {
		all = append(all, d.schemes...)
	}
	return all
}

// withDefaults fills in what a Config leaves open.
func (c Config) withDefaults() Config {
	if c.PoolMax == 0 {
		c.PoolMax = max(DefaultPoolMax, c.PoolMin)
	}
	if c.PoolMin == 0 {
		c.PoolMin = min(DefaultPoolMin, c.PoolMax)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Open returns the Store of a database. It does not connect: a database that is
// down is noticed by Ping and by the next call. An error means that
// the Config is wrong. Close must be called.
func Open(c Config) (*DB, error) {
	c = c.withDefaults()
	d, src, err := parse(c)
	if err != nil {
		return nil, err
	}
	p, err := src.open()
	if err != nil {
		return nil, err
	}
	db := &DB{dialect: d, address: Address{d.name, src.shown}, pools: p, log: c.Log.With("database", src.shown), poolMin: c.PoolMin, warming: new(atomic.Bool)}
	return db, nil
}

// Address returns what the URL that the store was opened with says.
func (db *DB) Address() Address { return db.address }
