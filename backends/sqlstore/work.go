package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// A task is what is done in one transaction: rows are locked and read, something is decided by what
// they say, and some are written. It may be begun several times, and must not keep anything of a
// time before.
type task interface {
	// begin returns the keys whose rows are locked, sorted and each once.
	begin() (keys [][]byte)
	// found takes what is under keys[i], unless there is nothing. value is valid until it returns.
	found(i int, value []byte)
	// count returns a query for one number, which runs after the locks, and where the number goes. A
	// query without text does not run.
	count() (q sqldb.Query, to *int64)
	// long lists those of the keys, by their positions, whose oldest parts are read along.
	long() []int
	// part takes a part of keys[i]. value is valid until it returns.
	part(i int, value []byte)
	// missing returns the parts that decide needs and that were not taken. They are read then, which
	// takes a round trip.
	missing(now limit.Instant) []part
	// decide returns what is to be written and deleted, all of it among the keys.
	decide(now limit.Instant) (put []row, drop [][]byte)
}

// maxTries bounds how often a transaction is tried that a deadlock, a race for a new row or a lost
// connection has undone.
const maxTries = 6

// An effort says how long and how often a task is tried.
type effort struct {
	// wait is the part of the time that is left in which the rows of one try must have been locked.
	wait float64
	// again reports whether an error is one to try again after.
	again func(error) bool
}

// do runs a task. Its error is one of a [backends.Backend].
func (b *Backend) do(ctx context.Context, op string, t task) error {
	return b.run(ctx, op, t, effort{wait: 1, again: passes})
}

// run is do with an effort.
func (b *Backend) run(ctx context.Context, op string, t task, e effort) error {
	ctx, cancel := context.WithTimeout(ctx, b.conf.Timeout)
	defer cancel()
	if err := b.beat(ctx, sqldb.IfHanging); err != nil {
		// not %w: the beat may be in doubt, this is not
		return failed(fmt.Errorf("%s: nothing is written while commits hang: %v", op, err), false)
	}
	return b.repeat(ctx, op, t, e)
}

// repeat tries a task until it is done, or must not be tried again.
func (b *Backend) repeat(ctx context.Context, op string, t task, e effort) error {
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return failed(fmt.Errorf("%s: %w", op, ctx.Err()), false)
		}
		err, inDoubt := b.try(ctx, op, t, e.wait)
		if err == nil {
			return nil
		}
		if inDoubt {
			b.db.Hangs.Committed(ctx, err)
		}
		if inDoubt || !e.again(err) || try == maxTries {
			return failed(err, inDoubt)
		}
		b.retries.Add(1)
		if background.Sleep(ctx, rand.N(time.Duration(try)*time.Millisecond)) != nil {
			return failed(err, false)
		}
	}
}

// beatLife is how long the row of a beat may stay, in µs.
const beatLife = 60_000_000

// beat writes to a row of this process's own.
func (b *Backend) beat(ctx context.Context, when sqldb.When) error {
	err := b.db.Hangs.Try(ctx, when, func() error {
		return b.repeat(ctx, "ping",
			&plain{keys: [][]byte{b.self}, then: func(_ [][]byte, now limit.Instant) ([]row, [][]byte) {
				return []row{{key: b.self, state: []byte{}, at: int64(now), ends: now + beatLife}}, nil
			}}, effort{wait: 1, again: passes})
	})
	if err != nil && err == ctx.Err() { // its turn has not come
		return failed(fmt.Errorf("ping: %w", err), false)
	}
	return err
}

// errHeld is of rows that were not locked in the part of the time that is there for it.
var errHeld = errors.New("another transaction holds a row")

// try runs a task once. inDoubt says of an error whether the transaction may have been committed.
func (b *Backend) try(ctx context.Context, op string, t task, wait float64) (err error, inDoubt bool) {
	tx, err := b.conf.dialect.begin(b.db, ctx, op)
	if err != nil {
		return err, false
	}
	w := work{b: b, tx: tx, task: t, keys: t.begin()}
	locking, cancel := ctx, context.CancelFunc(func() {})
	if until, ok := ctx.Deadline(); ok && wait < 1 {
		locking, cancel = context.WithTimeout(ctx, time.Duration(wait*float64(time.Until(until))))
	}
	put, drop, err := w.read(locking, op)
	late := locking.Err() != nil
	cancel()
	switch {
	case ctx.Err() != nil && err == nil:
		err = fmt.Errorf("%s: %w", op, ctx.Err())
	case ctx.Err() == nil && err != nil && late:
		err = &sqldb.Error{Kind: sqldb.Held, Op: op, Err: errHeld}
	}
	switch {
	case err != nil:
		b.abandon(tx)
		return err, false
	case len(put)+len(drop) == 0:
		// A commit would wait for the disk, where locks are written to rows.
		tx.RollbackWithin(ctx)
		return nil, false
	}
	err = tx.Commit(ctx, op, b.conf.dialect.writes(&w, put, drop)...)
	return err, err != nil && tx.InDoubt()
}

// abandon ends a transaction whose caller may not have the time to wait for that.
func (b *Backend) abandon(tx *sqldb.Tx) {
	b.running.Add(1)
	b.conf.Panics.Go("sqlstore rollback", func() {
		defer b.running.Done()
		tx.Rollback() // which has a deadline
	})
}

// work is one try of a task.
type work struct {
	b     *Backend
	tx    *sqldb.Tx
	task  task
	keys  [][]byte
	there []bool // which keys have rows
	more  []bool // which have rows beside them that hold the rest of their states (oracle.go)
}

// read locks and reads the rows, then the clock, and decides.
func (w *work) read(ctx context.Context, op string) (put []row, drop [][]byte, err error) {
	w.there = make([]bool, len(w.keys))
	now, err := w.b.conf.dialect.read(w, ctx, op)
	if err != nil {
		return nil, nil, err
	}
	if missing := w.task.missing(limit.Instant(now)); len(missing) > 0 {
		if err := w.b.conf.dialect.readParts(w, ctx, op, missing); err != nil {
			return nil, nil, err
		}
	}
	put, drop = w.task.decide(limit.Instant(now))
	return put, drop, nil
}

// readTexts reads by single statements.
func (w *work) readTexts(ctx context.Context, op string) (now int64, err error) {
	d := w.b.conf.dialect
	queries := d.lock(w.keys, w.b.db.Returning())
	lock, clock := &queries[len(queries)-1], d.clock
	lock.Each, clock.To = w.rows(w.found), []any{&now}
	queries = append(queries, clock)
	if q, to := w.task.count(); q.Text != "" {
		q.To = []any{to}
		queries = append(queries, q)
	}
	if long := w.task.long(); len(long) > 0 {
		of := make([]part, len(long)) // of which it is not known which they are
		for n, i := range long {
			of[n].key = w.keys[i]
		}
		queries = append(queries, w.partsBy(d.oldest(of))...)
	}
	_, err = w.tx.Run(ctx, op, queries...)
	return now, err
}

// readPartTexts reads some parts by single statements.
func (w *work) readPartTexts(ctx context.Context, op string, of []part) error {
	return w.tx.Change(ctx, op, w.partsBy(w.b.conf.dialect.parts(of))...)
}

// partsBy passes the parts that queries return to the task.
func (w *work) partsBy(queries []sqldb.Query) []sqldb.Query {
	for i := range queries {
		queries[i].Each = w.rows(w.task.part)
	}
	return queries
}

// rows takes rows of a key and a value.
func (w *work) rows(take func(i int, value []byte)) func(scan func(...any) error) error {
	return func(scan func(...any) error) error {
		var key, value []byte
		if err := scan(&key, &value); err != nil {
			return err
		}
		i := position(w.keys, key)
		if i < 0 {
			return fmt.Errorf("%w: the database has returned a row that nobody asked for", backends.ErrCorrupt)
		}
		take(i, value)
		return nil
	}
}

// found notes that keys[i] has a row.
func (w *work) found(i int, value []byte) {
	w.there[i] = true
	if len(value) > 0 {
		w.task.found(i, value)
	}
}

// texts are the statements before the commit.
func (w *work) texts(put []row, drop [][]byte) (all []sqldb.Query) {
	d := w.b.conf.dialect
	var gone, newer []part
	for i := range put {
		gone, newer = append(gone, put[i].gone...), append(newer, put[i].add...)
	}
	if len(gone) > 0 {
		all = append(all, d.dropParts(gone)...)
	}
	if len(newer) > 0 {
		all = append(all, d.addParts(newer))
	}
	var add []row
	if d.add != nil {
		put, add = w.divide(put)
	}
	if len(put) > 0 {
		all = append(all, d.put(put))
	}
	if len(add) > 0 {
		all = append(all, d.add(add))
	}
	if len(drop) > 0 {
		all = append(all, d.drop(drop)...)
	}
	return all
}

// divide separates rows that are there from those that are not.
func (w *work) divide(rows []row) (there, missing []row) {
	for i := range rows {
		if w.there[position(w.keys, rows[i].key)] {
			there = append(there, rows[i])
		} else {
			missing = append(missing, rows[i])
		}
	}
	return there, missing
}
