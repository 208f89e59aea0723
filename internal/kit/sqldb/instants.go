package sqldb

import "database/sql"

// instant reads an instant.
type instant struct {
	us   *int64
	null *bool // set to whether it is NULL; nil if it cannot be
	read func(any) (int64, error)
}

// Scan implements sql.Scanner.
func (i instant) Scan(src any) (err error) {
	if src == nil && i.null != nil {
		*i.null = true
		return nil
	}
	*i.us, err = i.read(src)
	return err
}

// Into reads an instant into us, in microseconds since the epoch.
func (d *Dialect) Into(us *int64) sql.Scanner { return instant{us: us, read: d.Micros} }

// IntoNull is Into for an instant that may be NULL: it sets null then, and leaves us.
func (d *Dialect) IntoNull(us *int64, null *bool) sql.Scanner {
	return instant{us: us, null: null, read: d.Micros}
}
