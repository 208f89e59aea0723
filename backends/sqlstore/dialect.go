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
	// schemes are those of URLs that lead here.
	schemes []string
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
	// STATE. If makes, it makes the missing ones, with an empty STATE.
	lock  func(keys [][]byte, returning bool) []sqldb.Query
	makes bool
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

// dialects are all that there are.
func dialects() []*dialect { return []*dialect{sqlite(), postgres(), mysql(), oracle()} }

// dialectOf returns what this package needs of the database of a URL; nil if it has no such.
func dialectOf(rawURL string) *dialect {
	scheme, _, _ := strings.Cut(rawURL, ":")
	all := dialects()
	if i := slices.IndexFunc(all, func(d *dialect) bool { return slices.Contains(d.schemes, scheme) }); i >= 0 {
		return all[i]
	}
	return nil
}

// columns are those that put and add write.
const columns = "K, STATE, AT_US, N, M, ENDS_US"

// listed are the arguments of statements that have a placeholder for each key.
func listed(keys [][]byte) []any {
	args := make([]any, len(keys))
	for i, k := range keys {
		args[i] = k
	}
	return args
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

// repeated is text n times, with commas between.
func repeated(text string, n int) string {
	return strings.TrimSuffix(strings.Repeat(text+",", n), ",")
}

// ranges are page, between and count in a dialect whose placeholders are made by place, and whose
// clock is now.
func (d *dialect) ranges(now string, place func(n int) string) {
	d.begin, d.read, d.writes, d.longTrips = (*sqldb.DB).Begin, (*work).readTexts, (*work).texts, 2
	d.readParts = (*work).readPartTexts
	d.clock = sqldb.Query{Text: "SELECT " + now}
	d.page = func(after []byte, n int) sqldb.Query {
		return sqldb.Query{Args: []any{after}, Text: fmt.Sprintf(
			"SELECT K, ENDS_US, M, %s FROM HEADGATE_STATE WHERE K > %s ORDER BY K LIMIT %d", now, place(1), n)}
	}
	inside := fmt.Sprintf(" FROM HEADGATE_STATE WHERE K > %s AND K < %s AND ENDS_US > %s", place(1), place(2), now)
	d.between = func(low, high []byte) sqldb.Query {
		return sqldb.Query{Text: "SELECT K, STATE" + inside, Args: []any{low, high}}
	}
	d.count = func(low, high []byte) sqldb.Query {
		return sqldb.Query{Text: "SELECT COUNT(*)" + inside, Args: []any{low, high}}
	}
}

// listedThere is there in a dialect whose placeholders are made by place.
func listedThere(place func(n int) string) func(keys [][]byte) sqldb.Query {
	return func(keys [][]byte) sqldb.Query {
		places := make([]string, len(keys))
		for i := range places {
			places[i] = place(i + 1)
		}
		return sqldb.Query{Text: "SELECT K FROM HEADGATE_STATE WHERE K IN (" + strings.Join(places, ", ") + ")",
			Args: listed(keys)}
	}
}

// mark is a placeholder where they have no numbers.
func mark(int) string { return "?" }
