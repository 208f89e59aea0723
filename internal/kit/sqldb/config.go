package sqldb

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// Config says which database to use, and how.
type Config struct {
	// URL of the database:
	//
	//	sqlite:PATH, sqlite::memory:         PATH may end in ?synchronous=normal
	//	postgres://user:password@host:5432/database?parameters
	//	mysql://user:password@host:3306/database?parameters, also mariadb://, with several hosts as well
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
	// LockWait is how long a statement waits for another transaction's lock before it fails with
	// kind Held. Zero: as the server is set, and one second on MySQL and MariaDB, which know whole
	// seconds only. SQLite, which has one lock, waits so long for other processes; zero: 5 s.
	LockWait time.Duration
	// IdleInTransaction is when the server ends a session that stands still within a transaction,
	// because its process was stopped. Zero: 10 s. MariaDB knows whole seconds only. MySQL and
	// SQLite know no such bound.
	IdleInTransaction time.Duration
	// Repeats: the owner repeats what a lost connection has undone, so that no connection need be
	// tried out, in a round trip of its own, after it was idle.
	Repeats bool
	// Relaxed: a commit does not wait for the disk, so that a crash of the server loses the last
	// ones. On MySQL and MariaDB that is the server's setting, and an error here.
	Relaxed bool
	// Existing: a SQLite file that does not exist is an error, and is not created.
	Existing bool
	// ReadsSuffice: a SQLite file that cannot be written is opened for reading, and DB.ReadOnly says so.
	ReadsSuffice bool
	// Errors converts an Error to the error that methods return, which must wrap it; nil: they return the Error.
	Errors func(*Error) error
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

// defaultIdleInTransaction is when a session that stands still within a transaction ends.
const defaultIdleInTransaction = 10 * time.Second

// dialTimeout bounds one attempt to connect.
const dialTimeout = 5 * time.Second

// withDefaults fills in what a Config leaves open.
func (c Config) withDefaults() Config {
	c.PoolMax = cmp.Or(c.PoolMax, max(DefaultPoolMax, c.PoolMin))
	c.PoolMin = cmp.Or(c.PoolMin, min(DefaultPoolMin, c.PoolMax))
	c.IdleInTransaction = cmp.Or(c.IdleInTransaction, defaultIdleInTransaction)
	if c.Errors == nil {
		c.Errors = func(e *Error) error { return e }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// Check reports what Open would, as far as that is known without the disk.
func (c Config) Check() error {
	_, _, err := parse(c)
	return err
}

// parseURL reads a URL with a host. Its errors do not quote it: there may be a
// password in it.
func parseURL(address string) (*url.URL, error) {
	u, err := parseHosts(address)
	if err != nil || !plainHosts(u.Host) {
		return nil, errors.New("database url: it cannot be read; want scheme://user:password@host:port/database?parameters," +
			" with special characters in user and password as %XX, or give them apart from it")
	}
	if u.Host == "" {
		return nil, fmt.Errorf("database url: it has no host; want %s://host:port/database", u.Scheme)
	}
	return u, nil
}

// plainHosts reports whether each host has at most a port behind it. Two colons are the start of a password with a
// character that ends the host, which an error or a log would show.
func plainHosts(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			return false
		}
	}
	return true
}

// parseHosts is url.Parse for a URL that may have several hosts, IPv6 addresses in brackets among them,
// of which url.Parse knows only one.
func parseHosts(address string) (*url.URL, error) {
	before, rest, _ := strings.Cut(address, "://")
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority = rest[:i]
	}
	user := authority[:strings.LastIndexByte(authority, '@')+1]
	hosts := strings.Split(authority[len(user):], ",")
	if len(hosts) == 1 {
		return url.Parse(address)
	}
	u, err := url.Parse(before + "://" + user + "host" + rest[len(authority):])
	if err != nil {
		return nil, err
	}
	for i, host := range hosts {
		one, err := url.Parse("any://" + host)
		if err != nil {
			return nil, err
		}
		hosts[i] = one.Host
	}
	u.Host = strings.Join(hosts, ",")
	return u, nil
}

// password is the one in a URL, wherever it is.
func password(u *url.URL, parameters url.Values) string {
	if p, ok := u.User.Password(); ok {
		return p
	}
	return parameters.Get("password")
}

// scrub makes an error about a URL without its password.
func scrub(err error, secret string) error {
	text := err.Error()
	if secret != "" {
		text = strings.ReplaceAll(text, secret, "xxxxx")
		text = strings.ReplaceAll(text, url.QueryEscape(secret), "xxxxx")
		text = strings.ReplaceAll(text, url.PathEscape(secret), "xxxxx")
	}
	return errors.New("database url: " + text)
}

// An oracleAddress is what a driver needs to connect.
type oracleAddress struct {
	connect  string // host:port/service, a TNS name, or a description in parentheses
	user     string
	password string
	relaxed  bool // commits do not wait for the disk
}
