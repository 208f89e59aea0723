package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// oracleMigrations: DDL commits, so every statement can be run again.
func oracleMigrations() migrations {
	return migrations{
		begin: oracleBegin,
		// SQL*Plus would ask for values of & and stop statements at empty lines.
		printHead: "SET DEFINE OFF\nSET SQLBLANKLINES ON\nWHENEVER SQLERROR EXIT FAILURE ROLLBACK\n\n",
		printEnd:  "\n/\n",
		printTail: oracleTail,
		hasFlyway: "SELECT 1 FROM ALL_TABLES WHERE OWNER = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')" +
			" AND TABLE_NAME = 'flyway_schema_history'",
		flywayApplied: `SELECT 1 FROM "flyway_schema_history" WHERE "version" = '1' AND "success" = 1`,
		createHistory: "CREATE TABLE ${HISTORY} (SCRIPT_NM VARCHAR2(128) NOT NULL, CHECKSUM_TX VARCHAR2(64) NOT NULL," +
			" APPLIED_TS TIMESTAMP(6) NOT NULL, CONSTRAINT ${HISTORY}_PK PRIMARY KEY (SCRIPT_NM))",
		addHistory:  "INSERT INTO ${HISTORY} (SCRIPT_NM, CHECKSUM_TX, APPLIED_TS) SELECT :1, :2, " + oracleNow + " FROM DUAL",
		dropHistory: "DELETE FROM ${HISTORY} WHERE SCRIPT_NM = :1",
		present:     oraclePresent,
		check:       oracleCheck,
	}
}

const (
	oracleMakeLock = "CREATE TABLE RL_SCHEMA_LOCK (LOCK_ID NUMBER(1))"
	oracleTakeLock = "LOCK TABLE RL_SCHEMA_LOCK IN EXCLUSIVE MODE"
)

// oracleBegin holds a lock in a transaction on a second session, as DDL would end
// it on the first.
func oracleBegin(ctx context.Context, db *sql.DB) (Session, func(error) error, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, nil, errors.New("migrations of Oracle need two connections: set the pool's maximum to 2 or more")
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	lock, err := oracleLock(ctx, db, conn)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, func(error) error {
		err := lock.Rollback()
		if errors.Is(err, sql.ErrTxDone) {
			err = nil // the end of ctx has freed it
		}
		return errors.Join(err, conn.Close())
	}, nil
}

// oracleLock waits for the lock as long as ctx allows.
func oracleLock(ctx context.Context, db *sql.DB, conn *sql.Conn) (*sql.Tx, error) {
	if _, err := conn.ExecContext(ctx, oracleMakeLock); err != nil && !oraclePresent(oracleMakeLock, err) {
		return nil, fmt.Errorf("make RL_SCHEMA_LOCK: %w", err)
	}
	lock, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := lock.ExecContext(ctx, oracleTakeLock); err != nil {
		return nil, errors.Join(err, lock.Rollback())
	}
	return lock, nil
}

// oraclePresent: a name is used already, a column is there, a key is there (twice),
// an index on these columns is there, a key or a constraint is gone. Where a constraint
// is added the name may be that of an index, and the constraint is missing.
func oraclePresent(text string, err error) bool {
	code := oracleCode(err)
	if code == 955 {
		return strings.HasPrefix(strings.TrimSpace(uncommentedSQL(text)), "CREATE ")
	}
	return slices.Contains([]int{1430, 2260, 2261, 1408, 2441, 2443}, code)
}

// uncommentedSQL is a statement without the lines of comments that it begins with.
func uncommentedSQL(text string) string {
	for strings.HasPrefix(strings.TrimSpace(text), "--") {
		_, text, _ = strings.Cut(strings.TrimSpace(text), "\n")
	}
	return text
}

// oracleTail has SQL*Plus show what does not compile.
func oracleTail(schema Schema) string {
	text := "COMMIT\n/\n"
	for _, name := range schema.Packages {
		text += "SHOW ERRORS PACKAGE BODY " + name + "\n"
	}
	return text
}

// oracleErrors lists what does not compile: CREATE succeeds all the same.
const oracleErrors = "SELECT NAME, TYPE, LINE, POSITION, TEXT FROM ALL_ERRORS" +
	" WHERE OWNER = SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA') AND ATTRIBUTE = 'ERROR'" +
	" AND NAME IN ('%s')" +
	" ORDER BY NAME, TYPE, SEQUENCE FETCH FIRST 10 ROWS ONLY"

func oracleCheck(ctx context.Context, s Session, schema Schema) error {
	names := slices.Concat(schema.Packages, schema.Functions)
	if len(names) == 0 {
		return nil
	}
	rows, err := s.QueryContext(ctx, fmt.Sprintf(oracleErrors, strings.Join(names, "', '")))
	if err != nil {
		return fmt.Errorf("look for what does not compile: %w", err)
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var name, kind, text string
		var line, position int64
		if err := rows.Scan(&name, &kind, &line, &position, &text); err != nil {
			return err
		}
		found = append(found, fmt.Sprintf("%s %s, line %d, column %d: %s", strings.ToLower(kind), name, line, position,
			strings.TrimSpace(text)))
	}
	if err := rows.Err(); err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("it does not compile: %s", strings.Join(found, "; "))
}
