package testenv

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// StartMySQL starts a genuine MySQL for this test and waits until it answers. It is
// fast and forgets what the machine's death would lose, unless the test wants it
// Durable.
func StartMySQL(tb TB, opts ...DatabaseOption) *Database {
	tb.Helper()
	return startDatabase(tb, mySQLKind(), opts)
}

// SharedMySQL returns the one server that all tests of this process can have:
// they get along by CreateDatabase. It runs until the process ends.
func SharedMySQL(tb TB) *Database {
	tb.Helper()
	return sharedMySQL.use(tb, mySQLKind())
}

var sharedMySQL sharedDatabase

// mySQLKind is MariaDB's, where the two are still alike: in what clients see.
func mySQLKind() databaseKind {
	kind := mariaDBKind()
	kind.engine, kind.title = MySQL, "MySQL"
	// It may run as root; another user might not get to where it is installed.
	kind.user = ""
	kind.version = func(printed string) string { // mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))
		_, rest, _ := strings.Cut(printed, "Ver ")
		version, _, _ := strings.Cut(rest, " ")
		return version
	}
	kind.prepare, kind.arguments = prepareMySQL, mySQLArguments
	return kind
}

// prepareMySQL makes the data directory.
func prepareMySQL(s *databaseServer, _ databaseConfig) error {
	if err := os.WriteFile(filepath.Join(s.dir, "init.sql"), []byte(mariaDBInit), 0o644); err != nil {
		return err
	}
	return s.setUp(s.binary, append(mySQLUser(), "--initialize-insecure", "--datadir="+filepath.Join(s.dir, "data"),
		mySQLLogSize, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-flush-method=nosync")...)
}

const mySQLLogSize = "--innodb-redo-log-capacity=32M"

func mySQLArguments(dir string, port int, c databaseConfig) []string {
	args := append(mySQLUser(), "--datadir="+filepath.Join(dir, "data"), "--init-file="+filepath.Join(dir, "init.sql"),
		"--bind-address=127.0.0.1", "--port="+strconv.Itoa(port), "--socket="+filepath.Join(dir, "socket"),
		"--pid-file="+filepath.Join(dir, "pid"), "--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-name-resolve",
		"--performance-schema=OFF", "--innodb-buffer-pool-size=64M", mySQLLogSize, "--max-connections=300",
		"--character-set-server=utf8mb4", "--default-time-zone=+00:00")
	if !c.durable {
		// A commit still reaches the kernel before it is answered, so that killing
		// the server loses nothing.
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-doublewrite=OFF")
	}
	return append(args, c.settings...)
}

// mySQLUser has the server run as root where the tests do.
func mySQLUser() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}
