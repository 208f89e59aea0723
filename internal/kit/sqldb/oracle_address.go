package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// oracleParse reads oracle://user:password@host:1521/service, or what follows
// "jdbc:" in jdbc:oracle:thin:user/password@host:1521/SERVICE.
func oracleParse(url string, c Config) (*source, error) {
	a, err := oracleAddressOf(url)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	if c.Username != "" {
		a.user = c.Username
	}
	if c.Password != "" {
		a.password = c.Password
	}
	if a.user == "" || a.password == "" {
		return nil, errors.New("database: Oracle wants a username and a password")
	}
	a.relaxed = c.Relaxed
	connector, err := oracleConnector(a)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	return &source{
		shown: "oracle://" + a.connect,
		open: func(db *DB) error {
			db.onePool(oracleConnection{connector}, c)
			return nil
		},
	}, nil
}

var errOracleURL = errors.New("want oracle://host:1521/service or jdbc:oracle:thin:@host:1521/SERVICE, " +
	"with user:password@ or user/password@ before the host if they are given here")

func oracleAddressOf(text string) (oracleAddress, error) {
	rest, ok := strings.CutPrefix(text, "oracle:thin:")
	if !ok {
		return oracleURL(text)
	}
	login, connect, ok := strings.Cut(rest, "@")
	if at := strings.LastIndex(rest, "@"); !strings.HasPrefix(rest, "@") && at >= 0 {
		login, connect = rest[:at], rest[at+1:] // a password may hold an @
	}
	connect = strings.TrimPrefix(connect, "//")
	if !ok || connect == "" {
		return oracleAddress{}, errOracleURL
	}
	a := oracleAddress{connect: oracleSID(connect)}
	a.user, a.password, _ = strings.Cut(login, "/")
	return a, nil
}

// oracleSID makes a description of Java's older host:port:SID.
func oracleSID(connect string) string {
	parts := strings.Split(connect, ":")
	if len(parts) != 3 || strings.ContainsAny(connect, "()/[]") {
		return connect
	}
	return fmt.Sprintf("(DESCRIPTION=(ADDRESS=(PROTOCOL=TCP)(HOST=%s)(PORT=%s))(CONNECT_DATA=(SID=%s)))", parts[0],
		parts[1], parts[2])
}

func oracleURL(text string) (oracleAddress, error) {
	u, err := url.Parse(text)
	// The error would hold the text, and so perhaps a password.
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" || u.Fragment != "" {
		return oracleAddress{}, errOracleURL
	}
	password, _ := u.User.Password()
	return oracleAddress{connect: u.Host + "/" + strings.Trim(u.Path, "/"), user: u.User.Username(),
		password: password}, nil
}

// oracleConnection says what to do about a missing client.
type oracleConnection struct{ driver.Connector }

func (c oracleConnection) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil && strings.Contains(err.Error(), "DPI-1047") {
		err = fmt.Errorf("install Oracle Instant Client and have the system find it (LD_LIBRARY_PATH or ldconfig): %w", err)
		// database/sql would take it for a broken connection of the pool.
		return nil, &Error{Kind: Failed, Op: "connect to Oracle", Err: err}
	}
	return conn, err
}

// Close is called by database/sql.
func (c oracleConnection) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
