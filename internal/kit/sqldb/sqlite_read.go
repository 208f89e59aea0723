package sqldb

import (
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"

	"modernc.org/sqlite"
)

// readable reports whether this process may read the file.
func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// openSQLiteToRead opens a file that this process may read and not write.
//
// While a process writes a file, SQLite keeps two more files beside it, which readers need, too. If they do not exist
// and this process cannot create them, SQLite reads the file only with immutable=1, and then does not notice changes.
// So such a connection is closed when the file has changed.
func openSQLiteToRead(db *DB, file string, parameters url.Values, path string, c Config) (err error) {
	db.ReadOnly = true
	parameters.Set("mode", "ro")
	connector := sqliteConnector{file: &sqliteFile{path: path}}
	if connector.Connector, err = readingConnector(file, parameters); err == nil && besideWritable(path) != nil {
		parameters.Set("immutable", "1")
		connector.immutable, err = readingConnector(file, parameters)
	}
	if err != nil {
		return err
	}
	return poolSQLite(db, connector, c)
}

func readingConnector(file string, parameters url.Values) (driver.Connector, error) {
	connector, err := sqlite.NewConnector(file + "?" + parameters.Encode())
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	return connector, nil
}

// written reports whether some process has the file open for writing, or has left changes beside it.
func (f *sqliteFile) written() bool {
	_, err := os.Stat(f.path + "-wal")
	return err == nil
}

// state is different for each state of the file.
func (f *sqliteFile) state() string {
	info, err := os.Stat(f.path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(info.ModTime().UnixNano(), info.Size(), f.written())
}
