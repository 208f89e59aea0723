package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// OracleSQLMode is the sql_mode that makes MariaDB speak Oracle's dialect.
const OracleSQLMode = "ORACLE,EMPTY_STRING_IS_NULL"

// OracleMode notes for the report that the test speaks Oracle's dialect to a
// MariaDB, and returns the sql_mode that its sessions have to set.
func OracleMode(tb TB, mariaDB *Database) string {
	tb.Helper()
	Require(tb, MariaDBOracle)
	ran(tb, MariaDBOracle, mariaDB.Version)
	return OracleSQLMode
}

func mariaDBKind() databaseKind {
	return databaseKind{
		engine: MariaDB,
		title:  "MariaDB",
		user:   "mysql",
		ready:  "ready for connections",
		version: func(printed string) string { // mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64
			_, rest, _ := strings.Cut(printed, "Ver ")
			word, _, _ := strings.Cut(rest, " ")
			version, _, _ := strings.Cut(word, "-")
			return version
		},
		prepare:     prepareMariaDB,
		created:     func(*databaseServer) error { return nil },
		arguments:   mariaDBArguments,
		client:      mariaDBClient,
		anyDatabase: "mysql",
		url: func(addr, database string) string {
			return "mysql://" + DatabaseUser + ":" + DatabasePassword + "@" + addr + "/" + database
		},
		// Unlike PostgreSQL it would wait a day for a transaction that a test forgot.
		drop: func(database string) string {
			return "SET SESSION lock_wait_timeout = 20; DROP DATABASE IF EXISTS " + database + ";"
		},
		replicas: mariaDBReplicas(),
		removed:  func(*databaseServer) {},
	}
}

// mariaDBInit makes the login and the database before the server listens. It runs
// at every start, hence the conditions.
const mariaDBInit = "CREATE DATABASE IF NOT EXISTS " + DatabaseName + ";\n" +
	"CREATE USER IF NOT EXISTS " + DatabaseUser + "@'%' IDENTIFIED BY '" + DatabasePassword + "';\n" +
	"GRANT ALL ON *.* TO " + DatabaseUser + "@'%' WITH GRANT OPTION;\n"

// writeMariaDBInit writes the file that mySQLCommon names.
func writeMariaDBInit(s *databaseServer) error {
	return os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte(mariaDBInit), 0o644)
}

// prepareMariaDB makes the data directory. Nothing in it is worth a wait for the
// disk.
func prepareMariaDB(s *databaseServer, _ databaseConfig) error {
	if err := writeMariaDBInit(s); err != nil {
		return err
	}
	return s.newData("mariadb-install-db", "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"),
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", mariaDBLogSize,
		"--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-flush-method=nosync")
}

const mariaDBLogSize = "--innodb-log-file-size=16M"

func mariaDBArguments(dir string, port int, c databaseConfig) []string {
	return append([]string{"--no-defaults", mariaDBLogSize}, mySQLCommon(dir, port, c, mariaDBReplicas())...)
}

// mySQLCommon are the arguments that MariaDB and MySQL have in common, the test's
// own last.
func mySQLCommon(dir string, port int, c databaseConfig, r binlogReplicas) []string {
	args := []string{"--datadir=" + filepath.Join(dir, "data"), "--init-file=" + filepath.Join(dir, "init.sql"),
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port), "--socket=" + filepath.Join(dir, "socket"),
		"--pid-file=" + filepath.Join(dir, "pid"), "--skip-name-resolve", "--performance-schema=OFF",
		"--innodb-buffer-pool-size=64M", "--max-connections=300",
		"--character-set-server=utf8mb4", "--default-time-zone=+00:00"}
	if !c.durable {
		// A commit still reaches the kernel before it is answered, so that killing
		// the server loses nothing.
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-doublewrite=OFF")
	}
	if c.primary {
		args = append(args, r.binlogSettings(1)...)
	}
	return append(args, c.settings...)
}

func mariaDBClient(s *databaseServer, database string) *exec.Cmd {
	cmd := account{}.command(os.TempDir(), "mariadb", "--no-defaults", "--protocol=tcp", "--host=127.0.0.1",
		"--port="+strconv.Itoa(s.port), "--user="+DatabaseUser, "--connect-timeout=10", "--batch", "--skip-column-names",
		"--default-character-set=utf8mb4", "--database="+database)
	cmd.Env = append(cmd.Env, "MYSQL_PWD="+DatabasePassword)
	return cmd
}
