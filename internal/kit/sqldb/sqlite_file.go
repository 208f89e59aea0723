package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"modernc.org/sqlite"
)

// A sqliteFile is the file that the connections of a process have open. A file that is removed, or that another one
// takes the place of, as when a backup is restored, lives on for those who have it open: they would go on with what
// other processes do not see, and what is gone when they end.
type sqliteFile struct {
	path string // empty: memory

	mu   sync.Mutex
	open os.FileInfo
}

// check returns an error if the path does not lead to the file any more. The first call notes which one that is.
func (f *sqliteFile) check() error {
	if f.path == "" {
		return nil
	}
	info, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil // whether it is another file is unknown
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = info
	}
	if err != nil || !os.SameFile(f.open, info) {
		return fmt.Errorf("the file %q was removed or replaced while this process has it open: "+
			"end all processes that use it, and start them again", f.path)
	}
	return nil
}

// ResetSession implements driver.SessionResetter: database/sql calls it before it uses a connection again, and makes
// no use of other errors than driver.ErrBadConn.
func (c *sqliteConn) ResetSession(ctx context.Context) error {
	c.moved = c.file.check()
	if c.state != "" && c.state != c.file.state() {
		return driver.ErrBadConn // SQLite would not notice
	}
	return c.sqliteSession.ResetSession(ctx)
}

// BeginTx implements driver.ConnBeginTx.
func (c *sqliteConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.moved != nil {
		return nil, c.moved
	}
	return c.sqliteSession.BeginTx(ctx, opts)
}

// keepLog keeps SQLite from removing the write-ahead log as the connection is closed, if the file is another one: it
// removes it by its name, and it would be that of the other file.
func (c *sqliteConn) keepLog() error {
	if control, ok := c.sqliteSession.(sqlite.FileControl); ok && c.file.check() != nil {
		_, err := control.FileControlPersistWAL("main", 1)
		return err
	}
	return nil
}
