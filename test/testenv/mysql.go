package testenv

import (
	"os"
	"path/filepath"
)

// mySQLKind is MariaDB's, where the two are still alike: in what clients see.
func mySQLKind() databaseKind {
	kind := mariaDBKind()
	kind.engine, kind.title = MySQL, "MySQL"
	// It may run as root; another user might not get to where it is installed.
	kind.user = ""
	kind.prepare, kind.arguments, kind.replicas = prepareMySQL, mySQLArguments, mySQLReplicas()
	return kind
}

// prepareMySQL makes the data directory.
func prepareMySQL(s *databaseServer, _ databaseConfig) error {
	if err := writeMariaDBInit(s); err != nil {
		return err
	}
	return s.newData(s.binary, append(mySQLUser(), "--initialize-insecure", "--datadir="+filepath.Join(s.dir, "data"),
		mySQLLogSize, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-flush-method=nosync")...)
}

const mySQLLogSize = "--innodb-redo-log-capacity=32M"

func mySQLArguments(dir string, port int, c databaseConfig) []string {
	args := append(mySQLUser(), "--mysqlx=OFF", "--secure-file-priv=NULL", mySQLLogSize)
	return append(args, mySQLCommon(dir, port, c, mySQLReplicas())...)
}

// mySQLUser has the server run as root where the tests do.
func mySQLUser() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}
