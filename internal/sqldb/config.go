package sqldb

import (
	"fmt"
	"log/slog"
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

// checkPool says what is wrong with the bounds of the pool.
func (c Config) checkPool() error {
	if c.PoolMin < 0 || c.PoolMax < 0 || (c.PoolMax > 0 && c.PoolMin > c.PoolMax) {
		return fmt.Errorf("database pool: want 0 <= min <= max, got min %d and max %d", c.PoolMin, c.PoolMax)
	}
	return nil
}
