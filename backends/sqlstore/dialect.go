package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate-rls/headgate/internal/kit/sqldb"
)

// A dialect is what differs between databases, as texts. Keys are sorted and there once.
type dialect struct {
	*sqldb.Dialect
	// maxLeases bounds a limit on requests in flight: they are one value, which each acquire and
	// release writes anew.
	maxLeases int64
	// longTrips is how many round trips a slice takes whose states have lists.
	longTrips int
	// relaxes: a commit need not wait for the disk, if the session says so.
	relaxes bool

	// begin begins a transaction, read locks the rows and returns the clock, and writes are the
	// statements that Tx.Commit runs.
	begin  func(db *sqldb.DB, ctx context.Context, op string) (*sqldb.Tx, error)
	read   func(w *work, ctx context.Context, op string) (now int64, err error)
	writes func(w *work, put []row, drop [][]byte) []sqldb.Query

	// lock locks the rows of keys that are there, in order, and its last query returns their K and
	// STATE. That of MySQL makes the missing ones, with an empty STATE.
	lock func(keys [][]byte, returning bool) []sqldb.Query
	// clock returns the time in µs. It is asked after the locks.
	clock sqldb.Query
	// put writes rows that are locked, and add those that were not there. Nil: put does both.
	put, add func(rows []row) sqldb.Query
	// drop deletes the rows of these keys, and the parts of their logs.
	drop func(keys [][]byte) []sqldb.Query

	// oldest returns K and PART of the two oldest parts of each key, and parts those of some parts;
	// addParts writes parts, and dropParts deletes some. readParts has a task take what parts
	// returns.
	oldest, parts func(of []part) []sqldb.Query
	addParts      func(all []part) sqldb.Query
	dropParts     func(all []part) []sqldb.Query
	readParts     func(w *work, ctx context.Context, op string, of []part) error

	// page returns K, ENDS_US, M and the clock of n keys after one, in order.
	page func(after []byte, n int) sqldb.Query
	// expired locks those of the keys that nobody else has locked and that end before an instant,
	// and returns their K.
	expired func(keys [][]byte, before int64) sqldb.Query
	// there returns the K of those of the keys that have rows, locked or not. Nil: rows are
	// not locked one by one.
	there func(keys [][]byte) sqldb.Query
	// between returns K and STATE of the rows whose keys are between two and which have not ended;
	// count returns how many they are.
	between, count func(low, high []byte) sqldb.Query
}

// dialectOf returns what this package needs of the database of a URL; nil if it has no such.
func dialectOf(rawURL string) *dialect {
	scheme, _, _ := strings.Cut(rawURL, ":")
	all := []*dialect{sqlite(), postgres(), mysql(), oracle()}
	if i := slices.IndexFunc(all, func(d *dialect) bool { return d.Has(scheme) }); i >= 0 {
		return all[i]
	}
	return nil
}

// columns are those that put and add write.
const columns = "K, STATE, AT_US, N, M, ENDS_US"

// among is a statement about the rows of keys, with a placeholder for each.
func among(text string, keys [][]byte) sqldb.Query {
	places, args := sqldb.Listed(keys)
	return sqldb.Query{Text: text + " WHERE K IN (" + places + ")", Args: args}
}

// values are those of rows for INSERT … VALUES with a placeholder for each column.
func values(rows []row) []any {
	args := make([]any, 0, 6*len(rows))
	for i := range rows {
		r := &rows[i]
		args = append(args, r.key, r.state, r.at, r.n, r.m, int64(r.ends))
	}
	return args
}

// ranges are page, between and count in a dialect whose clock is now, and which ends a SELECT of so
// many rows with first.
func (d *dialect) ranges(now, first string) {
	d.page = func(after []byte, n int) sqldb.Query {
		return d.Query("SELECT K, ENDS_US, M, "+now+" FROM HEADGATE_STATE WHERE K > ? ORDER BY K "+
			fmt.Sprintf(first, n), after)
	}
	inside := " FROM HEADGATE_STATE WHERE K > ? AND K < ? AND ENDS_US > " + now
	d.between = func(low, high []byte) sqldb.Query { return d.Query("SELECT K, STATE"+inside, low, high) }
	d.count = func(low, high []byte) sqldb.Query { return d.Query("SELECT COUNT(*)"+inside, low, high) }
}

// texts is what a dialect has that runs single statements.
func (d *dialect) texts() *dialect {
	d.begin, d.read, d.writes, d.longTrips = (*sqldb.DB).Begin, (*work).readTexts, (*work).texts, 2
	d.readParts = (*work).readPartTexts
	d.clock = sqldb.Query{Text: "SELECT " + d.Clock}
	d.ranges(d.Clock, "LIMIT %d")
	return d
}

// listing are there and expired in a dialect without arrays.
func (d *dialect) listing() {
	d.there = func(keys [][]byte) sqldb.Query {
		q := among("SELECT K FROM HEADGATE_STATE", keys)
		return d.Query(q.Text, q.Args...)
	}
	d.expired = func(keys [][]byte, before int64) sqldb.Query {
		q := among("SELECT K FROM HEADGATE_STATE", keys)
		return d.Query(q.Text+" AND ENDS_US < ? FOR UPDATE SKIP LOCKED", append(q.Args, before)...)
	}
}
