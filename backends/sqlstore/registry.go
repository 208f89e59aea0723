package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A registry keeps its tables in the table of counters, under keys that begin with a letter. A row has
// the instant at which it ends, in 8 bytes, and then its value. A transaction that puts rows into a
// table locks the table's first row, which has no name.
type registry struct{ *Backend }

// Registry implements [backends.Registrar].
func (b *Backend) Registry() backends.Registry { return registry{b} }

// prefix begins the keys of a table.
func prefix(table string) []byte { return limit.AppendPart([]byte("registry:"), table) }

func rowKey(table, key string) []byte { return append(prefix(table), key...) }

// after is the first key after all that begin with p, which does not end with the last byte.
func after(p []byte) []byte {
	next := slices.Clone(p)
	next[len(next)-1]++
	return next
}

func stored(key []byte, value string, now, ends limit.Instant) row {
	state := binary.BigEndian.AppendUint64(nil, uint64(ends))
	return row{key: key, state: append(state, value...), at: int64(now), ends: ends}
}

// alive returns what a value says, if it has not ended.
func alive(value []byte, now limit.Instant) (text string, ok bool) {
	if len(value) < 8 || limit.Instant(binary.BigEndian.Uint64(value)) <= now {
		return "", false
	}
	return string(value[8:]), true
}

// Claim implements [backends.Registry].
func (r registry) Claim(ctx context.Context, name, value string, ttl time.Duration) (there string, err error) {
	if err := backends.CheckRow(name, value, ttl); err != nil {
		return "", err
	}
	key := rowKey("claims", name)
	err = r.do(ctx, "claim", &plain{keys: [][]byte{key}, then: func(values [][]byte, now limit.Instant) ([]row, [][]byte) {
		if other, ok := alive(values[0], now); ok && other != value {
			there = other
			return nil, nil
		}
		there = value
		return []row{stored(key, value, now, now.Add(ttl))}, nil
	}})
	if err != nil {
		return "", err
	}
	return there, nil
}

// Put implements [backends.Registry].
func (r registry) Put(ctx context.Context, table string, rows []backends.Row, ttl time.Duration) (left int, err error) {
	latest := map[string]string{}
	var keys [][]byte
	for _, row := range rows {
		if err := backends.CheckRow(row.Key, row.Value, ttl); err != nil {
			return 0, err
		}
		key := rowKey(table, row.Key)
		if _, ok := latest[string(key)]; !ok {
			keys = append(keys, key)
		}
		latest[string(key)] = row.Value
	}
	low := prefix(table)
	err = inChunks(keys, func(some [][]byte) error {
		more := 0
		p := &plain{keys: append([][]byte{low}, some...), counting: r.conf.dialect.count(low, after(low))}
		// The rows that are there, and as many new ones as there is room for. The first key is the table's
		// own, which is written for its lock only.
		p.then = func(found [][]byte, now limit.Instant) (put []row, drop [][]byte) {
			more = 0
			ends := now.Add(ttl)
			put = append(put, stored(low, "", now, ends))
			for i, key := range some {
				if _, ok := alive(found[i+1], now); !ok {
					if p.counted >= backends.MaxRows {
						more++
						continue
					}
					p.counted++
				}
				put = append(put, stored(key, latest[string(key)], now, ends))
			}
			return put, nil
		}
		err := r.do(ctx, "put rows", p)
		left += more
		return err
	})
	return left, err
}

// List implements [backends.Registry].
func (r registry) List(ctx context.Context, table string) (rows []backends.Row, err error) {
	low := prefix(table)
	ctx, cancel := context.WithTimeout(ctx, r.conf.Timeout)
	defer cancel()
	err = r.db.Rows(ctx, r.db.Read, "list rows", r.conf.dialect.between(low, after(low)), func(found *sql.Rows) error {
		var key, value []byte
		if err := found.Scan(&key, &value); err != nil {
			return err
		}
		if name := key[len(low):]; len(name) > 0 && len(value) >= 8 {
			rows = append(rows, backends.Row{Key: string(name), Value: string(value[8:])})
		}
		return nil
	})
	if err != nil {
		return nil, failed(err, false)
	}
	return rows, nil
}

// Drop implements [backends.Registry].
func (r registry) Drop(ctx context.Context, table string, keys []string) error {
	all := make([][]byte, len(keys))
	for i, k := range keys {
		all[i] = rowKey(table, k)
	}
	return inChunks(all, func(some [][]byte) error {
		return r.do(ctx, "drop rows",
			&plain{keys: some, then: func([][]byte, limit.Instant) ([]row, [][]byte) { return nil, some }})
	})
}

// inChunks calls f with the keys, sorted and each once, at most maxKeys at a time.
func inChunks(keys [][]byte, f func(some [][]byte) error) error {
	slices.SortFunc(keys, bytes.Compare) // as all who lock them do
	keys = slices.CompactFunc(keys, bytes.Equal)
	for some := range slices.Chunk(keys, maxKeys) {
		if err := f(some); err != nil {
			return err
		}
	}
	return nil
}
