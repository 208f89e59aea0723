package backends

import (
	"context"
	"fmt"
	"time"
)

// A Registry is a few small tables that replicas share beside the counters:
// who is there, and what they must agree on. Its methods may be called
// concurrently and return by ctx's deadline; their errors are those of a
// Backend. Nothing on the way of a decision uses it.
type Registry interface {
	// Claim stores value under name for ttl, unless another value is there,
	// and returns the one that is there then. Claiming the same value again
	// prolongs its life.
	Claim(ctx context.Context, name, value string, ttl time.Duration) (string, error)
	// Put stores rows, each in place of the one with its key. A row expires
	// after ttl unless it is put again. Rows that are new to a table of
	// MaxRows are left out; Put returns how many.
	Put(ctx context.Context, table string, rows []Row, ttl time.Duration) (left int, err error)
	// List returns the rows of a table, in no order. A row that is there all
	// the time is among them.
	List(ctx context.Context, table string) ([]Row, error)
	// Drop removes the rows with these keys.
	Drop(ctx context.Context, table string, keys []string) error
}

// A Row is an entry of a table.
type Row struct{ Key, Value string }

// LaterRow reports whether a row's value has the mark of a later version, whose rest this one cannot read: it begins
// with a byte that no text begins with. See docs/formats.md.
func LaterRow(value string) bool { return value != "" && value[0] >= 0x80 }

// Bounds of a Registry. Beyond MaxRowLen, and for an empty key, Put and Claim
// return ErrInvalid and store nothing.
const (
	MaxRows   = 1 << 14 // of a table
	MaxRowLen = 1 << 10 // bytes of a key and its value
)

// A Registrar is a driver that has a Registry. Its decorators have none.
type Registrar interface{ Registry() Registry }

// CheckRow reports why a row cannot be stored for ttl, or nil.
func CheckRow(key, value string, ttl time.Duration) error {
	switch {
	case key == "" || len(key) > MaxKeyLen:
		return fmt.Errorf("%w: a row's key has %d bytes, want 1 to %d", ErrInvalid, len(key), MaxKeyLen)
	case len(key)+len(value) > MaxRowLen:
		return fmt.Errorf("%w: a row has %d bytes, at most %d", ErrInvalid, len(key)+len(value), MaxRowLen)
	case ttl < time.Millisecond:
		return fmt.Errorf("%w: a row that lives for %v, want at least 1ms", ErrInvalid, ttl)
	}
	return nil
}
