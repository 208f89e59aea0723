package oracletest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MariaDBConfig is for sessions of a MariaDB in Oracle mode. Oracle has no statements that commit by
// themselves; MariaDB would commit each one inside a procedure.
func MariaDBConfig(address, mode string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.Trim(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.InterpolateParams = true
	config.Logger = &mysql.NopLogger{}
	config.Params = map[string]string{
		"sql_mode": "'" + mode + "'", "autocommit": "0", "tx_isolation": "'READ-COMMITTED'",
		"innodb_lock_wait_timeout": "1",
	}
	return config, config.Apply(mysql.Charset("utf8mb4", "utf8mb4_bin"))
}

// MariaDB is a driver.Connector for a MariaDB in Oracle mode that takes what Oracle's driver takes:
// placeholders :1, :2, …, OUT parameters of blocks, which cost a round trip more, and errors that
// have Oracle's numbers. Outside a transaction it commits each statement.
func MariaDB(address, mode string) (driver.Connector, error) {
	config, err := MariaDBConfig(address, mode)
	if err != nil {
		return nil, err
	}
	c, err := mysql.NewConnector(config)
	return mariaDB{c}, err
}

type mariaDB struct{ driver.Connector }

// Connect implements driver.Connector.
func (m mariaDB) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := m.Connector.Connect(ctx)
	if err != nil {
		return nil, oracleError(err)
	}
	return &mariaDBConn{Conn: c}, nil
}

type mariaDBConn struct {
	driver.Conn
	within bool // a transaction
}

func (c *mariaDBConn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	_, err := c.run(ctx, "COMMIT")
	c.within = err == nil
	return &mariaDBTx{c}, err
}

type mariaDBTx struct{ c *mariaDBConn }

func (t *mariaDBTx) Commit() error   { return t.end("COMMIT") }
func (t *mariaDBTx) Rollback() error { return t.end("ROLLBACK") }

func (t *mariaDBTx) end(text string) error {
	t.c.within = false
	_, err := t.c.run(context.Background(), text)
	return err
}

// run sends a text as it is.
func (c *mariaDBConn) run(ctx context.Context, text string) (driver.Result, error) {
	r, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, text, nil)
	return r, oracleError(err)
}

// settle commits what was done outside a transaction.
func (c *mariaDBConn) settle(ctx context.Context) error {
	if c.within {
		return nil
	}
	_, err := c.run(ctx, "COMMIT")
	return err
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *mariaDBConn) CheckNamedValue(v *driver.NamedValue) (err error) {
	if _, ok := v.Value.(sql.Out); !ok {
		v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	}
	return err
}

// IsValid implements driver.Validator.
func (c *mariaDBConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

func (c *mariaDBConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	text, outs, err := mariaDBText(text, args)
	if err != nil {
		return nil, err
	}
	result, err := c.run(ctx, text)
	if err == nil && len(outs) > 0 {
		err = c.readOuts(ctx, outs)
	}
	if err != nil {
		return nil, err
	}
	return result, c.settle(ctx)
}

func (c *mariaDBConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	text, _, err := mariaDBText(text, args)
	if err != nil {
		return nil, err
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, text, nil)
	if err != nil {
		return nil, oracleError(err)
	}
	return &mariaDBRows{rows, c}, nil
}

type mariaDBRows struct {
	driver.Rows
	c *mariaDBConn
}

func (r *mariaDBRows) Next(to []driver.Value) error {
	err := r.Rows.Next(to)
	if errors.Is(err, io.EOF) {
		return err
	}
	return oracleError(err)
}

func (r *mariaDBRows) Close() error {
	return errors.Join(oracleError(r.Rows.Close()), r.c.settle(context.Background()))
}

// readOuts reads OUT parameters, which the block has left in variables.
func (c *mariaDBConn) readOuts(ctx context.Context, outs []sql.Out) error {
	names := make([]string, len(outs))
	for i := range names {
		names[i] = fmt.Sprintf("@o%d", i+1)
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, "SELECT "+strings.Join(names, ", "), nil)
	if err != nil {
		return oracleError(err)
	}
	defer rows.Close()
	values := make([]driver.Value, len(outs))
	if err := rows.Next(values); err != nil {
		return oracleError(err)
	}
	for i, out := range outs {
		switch to := out.Dest.(type) {
		case *int64:
			*to, err = strconv.ParseInt(text(values[i]), 10, 64)
		case *[]byte:
			*to = []byte(text(values[i]))
		case *string:
			*to = text(values[i])
		default:
			err = fmt.Errorf("an OUT parameter of type %T", to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func text(v driver.Value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	}
	return fmt.Sprint(v)
}

// mariaDBText puts arguments in the place of placeholders, and variables in that of OUT parameters.
func mariaDBText(text string, args []driver.NamedValue) (filled string, outs []sql.Out, err error) {
	filled = placeholderN.ReplaceAllStringFunc(text, func(mark string) string {
		n, _ := strconv.Atoi(mark[1:])
		if n > len(args) || n < 1 {
			err = fmt.Errorf("%s is one of %d arguments", mark, len(args))
			return mark
		}
		switch v := args[n-1].Value.(type) {
		case nil:
			return "NULL"
		case int64:
			return strconv.FormatInt(v, 10)
		case []byte:
			if len(v) == 0 {
				return "NULL" // as Oracle has it
			}
			return fmt.Sprintf("x'%x'", v)
		case string:
			return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(v) + "'"
		case sql.Out:
			outs = append(outs, v)
			return fmt.Sprintf("@o%d", len(outs))
		default:
			err = fmt.Errorf("an argument of type %T", v)
			return mark
		}
	})
	return strings.TrimSuffix(filled, ";"), outs, err
}

// oracleNumbers are those of Oracle for errors of MariaDB.
var oracleNumbers = map[uint16]int{1213: 60, 1205: 30006, 1062: 1, 1146: 942, 1305: 904, 1142: 1031, 1048: 1400,
	1406: 12899, 1053: 1089, 1040: 18, 1927: 3113}

// oracleError gives an error of MariaDB Oracle's number.
func oracleError(err error) error {
	var m *mysql.MySQLError
	switch {
	case errors.As(err, &m):
		number := 600
		if n, ok := oracleNumbers[m.Number]; ok {
			number = n
		}
		why := m.Message
		if number == 1 {
			why = "unique constraint (HEADGATE.PRIMARY) violated"
		}
		return &Error{number, fmt.Sprintf("ORA-%05d: %s", number, why)}
	case errors.Is(err, mysql.ErrInvalidConn):
		return &Error{3113, "ORA-03113: end-of-file on communication channel"}
	}
	return err
}
