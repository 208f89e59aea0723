package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// oracle is Oracle 19c and later.
//
// A transaction is two PL/SQL blocks, which call the package HEADGATE_STATE_API row by row: the first
// one locks in the order of the keys and then reads the clock, the second one writes and commits.
// Bytes cross as RAW, of which a column holds 2,000; what a state has beyond is in rows of
// HEADGATE_STATE_MORE, which take one round trip more to read. An empty RAW is NULL.
func oracle() *dialect {
	d := &dialect{
		Dialect: sqldb.Oracle, maxLeases: 256, relaxes: true,
		drop: func(keys [][]byte) []sqldb.Query {
			var b block
			for _, k := range keys {
				b.call("DROP_ROW", k)
			}
			return []sqldb.Query{b.query("")}
		},
	}
	d.listing()
	d.ranges("(SELECT HEADGATE_NOW_US() FROM DUAL)", "FETCH FIRST %d ROWS ONLY")
	d.count = func(low, high []byte) sqldb.Query { return sqldb.Query{Text: "COUNT_ROWS", Args: []any{low, high}} }
	d.begin, d.read, d.writes, d.longTrips = (*sqldb.DB).Standing, oracleRead, oracleWrites, 3
	d.readParts = oracleReadParts
	return d
}

// oraclePart is how much of a state a RAW holds.
const oraclePart = 2000

// A block is a PL/SQL block that calls procedures of HEADGATE_STATE_API.
type block struct {
	text strings.Builder
	args []any
}

func (b *block) call(procedure string, args ...any) {
	fmt.Fprintf(&b.text, " HEADGATE_STATE_API.%s(%s);", procedure, sqldb.Repeated("?", len(args)))
	b.args = append(b.args, args...)
}

// query is the block with a statement at its end.
func (b *block) query(last string) sqldb.Query {
	return sqldb.Oracle.Query("BEGIN"+b.text.String()+last+" END;", b.args...)
}

// A lockedRow is what LOCK_ROW returns.
type lockedRow struct {
	more  int64 // -1: none
	state []byte
}

// oracleRead is the first block. A second one reads what a state has beyond its first part.
func oracleRead(w *work, ctx context.Context, op string) (now int64, err error) {
	var b block
	rows := make([]lockedRow, len(w.keys))
	for i, key := range w.keys {
		b.call("LOCK_ROW", key, sql.Out{Dest: &rows[i].more}, sql.Out{Dest: &rows[i].state})
	}
	long := w.task.long()
	oldest := make([][2][]byte, len(long))
	for n, i := range long {
		b.call("OLDEST_LOG", w.keys[i], sql.Out{Dest: &oldest[n][0]}, sql.Out{Dest: &oldest[n][1]})
	}
	if q, to := w.task.count(); q.Text != "" {
		b.call(q.Text, append(q.Args, sql.Out{Dest: to})...)
	}
	b.call("CLOCK", sql.Out{Dest: &now})
	if err := w.tx.Change(ctx, op, b.query("")); err != nil {
		return 0, err
	}
	if err := oracleReadMore(ctx, op, w, rows); err != nil {
		return 0, err
	}
	w.more = make([]bool, len(rows))
	for i := range rows {
		if rows[i].more >= 0 {
			w.more[i] = rows[i].more > 0
			w.found(i, rows[i].state)
		}
	}
	for n, i := range long {
		for _, value := range oldest[n] {
			if len(value) > 0 {
				w.task.part(i, value)
			}
		}
	}
	return now, nil
}

// oracleReadParts reads parts of logs.
func oracleReadParts(w *work, ctx context.Context, op string, of []part) error {
	var b block
	states := make([][]byte, len(of))
	for n := range of {
		b.call("READ_LOG", of[n].key, of[n].last, sql.Out{Dest: &states[n]})
	}
	if err := w.tx.Change(ctx, op, b.query("")); err != nil {
		return err
	}
	for n := range of {
		if len(states[n]) > 0 {
			w.task.part(position(w.keys, of[n].key), states[n])
		}
	}
	return nil
}

// oracleReadMore completes the states of rows.
func oracleReadMore(ctx context.Context, op string, w *work, rows []lockedRow) error {
	var b block
	parts := make([][][]byte, len(rows))
	for i := range rows {
		if rows[i].more*oraclePart > oracleMaxState {
			return fmt.Errorf("%w: a row says that its state has %d parts", backends.ErrCorrupt, rows[i].more)
		}
		parts[i] = make([][]byte, max(rows[i].more, 0))
		for nb := range parts[i] {
			b.call("READ_PART", w.keys[i], int64(nb+1), sql.Out{Dest: &parts[i][nb]})
		}
	}
	if len(b.args) == 0 {
		return nil
	}
	if err := w.tx.Change(ctx, op, b.query("")); err != nil {
		return err
	}
	for i := range rows {
		if len(parts[i]) > 0 {
			rows[i].state = append(rows[i].state, bytes.Join(parts[i], nil)...)
		}
	}
	return nil
}

// oracleMaxState bounds what is read of a state: no log and no leases have more bytes.
const oracleMaxState = 1 << 20

// oracleWrites is the second block.
func oracleWrites(w *work, put []row, drop [][]byte) []sqldb.Query {
	var b block
	for i := range put {
		r := &put[i]
		at := position(w.keys, r.key)
		first, rest := r.state[:min(len(r.state), oraclePart)], r.state[min(len(r.state), oraclePart):]
		procedure := "ADD_ROW"
		if w.there[at] {
			procedure = "PUT_ROW"
		}
		b.call(procedure, r.key, first, int64((len(rest)+oraclePart-1)/oraclePart), r.at, r.n, r.m, int64(r.ends))
		if w.more[at] {
			b.call("DROP_PARTS", r.key)
		}
		for nb := int64(1); len(rest) > 0; nb++ {
			n := min(len(rest), oraclePart)
			b.call("ADD_PART", r.key, nb, rest[:n])
			rest = rest[n:]
		}
		for _, p := range r.gone {
			b.call("DROP_LOG", p.key, p.last)
		}
		for _, p := range r.add {
			b.call("ADD_LOG", p.key, p.last, p.state)
		}
	}
	for _, k := range drop {
		b.call("DROP_ROW", k)
	}
	return []sqldb.Query{b.query(" COMMIT;")}
}
