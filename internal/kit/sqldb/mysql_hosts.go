package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mysqlHosts are the addresses that the host of a URL has, separated by commas.
func mysqlHosts(text string) (all []string, err error) {
	for host := range strings.SplitSeq(text, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		if strings.HasPrefix(host, ":") {
			return nil, errors.New("database url: a host has no name; want host:3306, or host:3306,host:3306")
		}
		all = append(all, host)
	}
	return all, nil
}

// A mysqlHostsConnector connects to the first of several hosts that takes writes. Each of them has an equal
// part of the time: one that is silent leaves enough for those after it.
type mysqlHostsConnector struct {
	driver.Connector // of the first host
	rest             []driver.Connector
}

// newMySQLHosts returns a connector that asks for no more than a connection if there is one host.
func newMySQLHosts(config *mysql.Config, hosts []string) (driver.Connector, error) {
	all := make([]driver.Connector, len(hosts))
	for i, host := range hosts {
		own := config.Clone()
		own.Addr = host
		var err error
		if all[i], err = mysql.NewConnector(own); err != nil {
			return nil, err
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return &mysqlHostsConnector{all[0], all[1:]}, nil
}

// Connect implements driver.Connector.
func (h *mysqlHostsConnector) Connect(ctx context.Context) (driver.Conn, error) {
	var failed []error
	left := len(h.rest) + 1
	for _, host := range append([]driver.Connector{h.Connector}, h.rest...) {
		conn, err := connectInPart(ctx, host, left)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, unsent(err))
		left--
	}
	return nil, errors.Join(failed...)
}

// connectInPart connects to a host that takes writes, within a part of the time that is left.
func connectInPart(ctx context.Context, host driver.Connector, part int) (driver.Conn, error) {
	within := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/time.Duration(part))
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	conn, err := host.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := wantWritable(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// errReadOnly is what a server says of itself when somebody writes to it.
var errReadOnly = &mysql.MySQLError{Number: 1290,
	Message: "the server is read-only, as replicas are, or has lost its cluster"}

// takesWrites returns a row if a server is not read-only and, where it is a MariaDB that is a node of a
// Galera cluster, has not lost the others.
const takesWrites = `SELECT 1 FROM DUAL WHERE @@GLOBAL.read_only IN ('0', 'OFF') /*M!100500 AND NOT EXISTS (
	SELECT 1 FROM information_schema.GLOBAL_VARIABLES V, information_schema.GLOBAL_STATUS S
	WHERE V.VARIABLE_NAME = 'WSREP_ON' AND V.VARIABLE_VALUE = 'ON'
	AND S.VARIABLE_NAME = 'WSREP_READY' AND S.VARIABLE_VALUE = 'OFF') */`

// wantWritable asks a server whether it takes writes.
func wantWritable(ctx context.Context, conn driver.Conn) error {
	queryer, ok := conn.(driver.QueryerContext)
	if !ok {
		return errors.New("the driver cannot run a statement")
	}
	rows, err := queryer.QueryContext(ctx, takesWrites, nil)
	if err != nil {
		return err
	}
	err = rows.Next(make([]driver.Value, 1))
	if errors.Is(err, io.EOF) {
		err = errReadOnly
	}
	return errors.Join(err, rows.Close())
}
