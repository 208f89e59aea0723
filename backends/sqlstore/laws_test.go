package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// upTo admits so many units per day.
func upTo(most int64) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: most, Window: 24 * time.Hour})
}

func ask(l *limit.Limit, cost int64, groups ...string) limit.Request {
	var req limit.Request
	for _, g := range groups {
		req.Ops = append(req.Ops, limit.Op{Key: limit.Key{Group: g, Limit: "l"}, Limit: l, Cost: cost})
	}
	return req
}

// try sends requests and returns the verdicts, with their errors.
func try(ctx context.Context, b *Backend, reqs ...limit.Request) []limit.Verdict {
	out := make([]limit.Verdict, len(reqs))
	b.Take(ctx, reqs, out)
	return out
}

// used is how many units of l a group has taken. It asks until there is an answer: on a busy machine a connection may
// take longer to be made than a call may.
func used(t *testing.T, b *Backend, l *limit.Limit, group string) int64 {
	t.Helper()
	var v limit.Verdict
	testenv.Eventually(t, 30*time.Second, "say what is used", func() string {
		v = try(soon(t), b, ask(l, 0, group))[0]
		if errors.Is(v.Err, backends.ErrUnavailable) {
			return v.Err.Error()
		}
		return ""
	})
	check(t, v.Err)
	return l.Max() - v.Outcomes[0].Remaining
}

// A value that is not headgate's fails the requests that need it, alone, and stays.
func TestForeignDataFailsOnlyItsRequests(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		b := open(t, url)
		foreign := row{key: counterKey(limit.Key{Group: "foreign", Limit: "l"}), state: []byte("not ours"), ends: 1 << 52}
		putRows(t, b, []row{foreign})
		later := row{key: counterKey(limit.Key{Group: "later", Limit: "l"}), state: []byte("\x02later"), ends: 1 << 52}
		putRows(t, b, []row{later})
		l := upTo(5)
		out := try(soon(t), b, ask(l, 1, "a"), ask(l, 1, "foreign"), ask(l, 1, "b", "foreign"), ask(l, 1, "b"))
		for i, bad := range []bool{false, true, true, false} {
			switch err := out[i].Err; {
			case bad && (!errors.Is(err, backends.ErrCorrupt) || !errors.Is(err, backends.ErrNotApplied)):
				t.Errorf("request %d: %v", i, err)
			case !bad && (err != nil || !out[i].Admitted):
				t.Errorf("request %d: %+v", i, out[i])
			}
		}
		for i, v := range try(soon(t), b, ask(l, 1, "later"), ask(l, 1, "c", "later"), ask(l, 1, "c")) {
			if met := errors.Is(v.Err, backends.ErrLater) && errors.Is(v.Err, backends.ErrNotApplied); met != (i < 2) {
				t.Errorf("request %d about a later version: %+v", i, v)
			}
		}
		for _, group := range []string{"b", "c"} {
			if n := used(t, b, l, group); n != 1 {
				t.Errorf("%s has %d units, want 1", group, n)
			}
		}
		if n := number64(t, b, "SELECT COUNT(*) FROM HEADGATE_STATE WHERE AT_US = 0 AND N = 0"); n != 2 {
			t.Errorf("%d foreign rows are left", n)
		}
	})
}

// Many handles that meet new keys at once lose no update and admit nobody twice.
func TestNewKeysAreNotLost(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		const keys, handles = 300, 3
		l := upTo(1)
		var admitted [keys]int
		var mu sync.Mutex
		var all sync.WaitGroup
		for h := range handles {
			b := open(t, url)
			all.Go(func() {
				for first := 0; first < keys; first += 30 {
					var reqs []limit.Request
					for i := range 30 { // in another order each
						reqs = append(reqs, ask(l, 1, fmt.Sprint("new", first+(i*(2*h+1)+h)%30)))
					}
					for i, v := range try(soon(t), b, reqs...) {
						if v.Err != nil {
							t.Errorf("handle %d: %v", h, v.Err)
						} else if v.Admitted {
							mu.Lock()
							admitted[first+(i*(2*h+1)+h)%30]++
							mu.Unlock()
						}
					}
				}
			})
		}
		all.Wait()
		for k, n := range admitted {
			if n != 1 {
				t.Fatalf("key %d was admitted %d times, want 1", k, n)
			}
		}
	})
}

// A slice with more keys than one transaction takes is decided in several, and all of it.
func TestLongSlicesAreDecidedInFull(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		b := open(t, url)
		l := upTo(2)
		var reqs []limit.Request
		for i := range 2*maxKeys/40 + 3 {
			var groups []string
			for g := range 40 {
				groups = append(groups, fmt.Sprint(i, "-", g))
			}
			reqs = append(reqs, ask(l, 1, groups...))
		}
		for round, admitted := range []bool{true, true, false} {
			for i, v := range try(soon(t), b, reqs...) {
				if v.Err != nil || v.Admitted != admitted {
					t.Fatalf("round %d, request %d: %+v", round, i, v)
				}
			}
		}
	})
}

// What is refused or only asked is rolled back: a server does not wait for its disk then.
func TestRefusalsDoNotFlush(t *testing.T) {
	server := testenv.StartDatabase(t, testenv.Postgres, testenv.Durable())
	url := server.CreateDatabase("limits")
	migrate(t, url)
	b := open(t, url)
	l := upTo(1)
	try(soon(t), b, ask(l, 1, "full"))
	syncs := func() int64 {
		time.Sleep(1100 * time.Millisecond) // a session reports its figures once a second
		execute(t, b, "SELECT 1")
		time.Sleep(200 * time.Millisecond)
		return number64(t, b, "SELECT wal_sync FROM pg_stat_wal")
	}
	before := syncs()
	for range 200 {
		if v := try(soon(t), b, ask(l, 1, "full"))[0]; v.Err != nil || v.Admitted {
			t.Fatalf("%+v", v)
		}
	}
	refused := syncs() - before
	for range 200 {
		take(t, b, 0, "room", 1)
	}
	if taken := syncs() - before - refused; refused > 20 || taken < 150 {
		t.Errorf("200 refusals waited for the disk %d times, 200 admissions %d times", refused, taken)
	}
}

// Rows are found by the primary key, whatever the planner thought when it made a plan for all
// arguments: here the table had one row.
func TestPlansStayGood(t *testing.T) {
	url := testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("limits")
	migrate(t, url)
	b := open(t, url)
	take(t, b, 0, "one", 1)
	conn, err := b.db.Write.Conn(soon(t))
	check(t, err)
	defer conn.Close()
	d := b.conf.dialect
	const byKey, byPart = "Index Cond: (k = u.k)", "Index Cond: ((k = u.k) AND (last_us = u.last_us))"
	for i, c := range []struct{ text, args, condition string }{
		{d.lock(nil, false)[0].Text, "ARRAY['a'::bytea]", byKey},
		{d.expired(nil, 0).Text, "ARRAY['a'::bytea], 1", byKey},
		{d.oldest(nil)[0].Text, "ARRAY['a'::bytea]", byKey},
		{d.parts(nil)[0].Text, "ARRAY['a'::bytea], ARRAY[1::bigint]", byPart},
		{d.dropParts(nil)[0].Text, "ARRAY['a'::bytea], ARRAY[1::bigint]", byPart},
	} {
		text := c.text
		for _, s := range []string{"ANALYZE HEADGATE_STATE", "SET plan_cache_mode = force_generic_plan",
			fmt.Sprintf("PREPARE s%d AS %s", i, text)} {
			_, err := conn.ExecContext(soon(t), s)
			check(t, err)
		}
		rows, err := conn.QueryContext(soon(t), fmt.Sprintf("EXPLAIN EXECUTE s%d(%s)", i, c.args))
		check(t, err)
		var plan strings.Builder
		for rows.Next() {
			var line string
			check(t, rows.Scan(&line))
			plan.WriteString(line + "\n")
		}
		check(t, rows.Err())
		if p := plan.String(); !strings.Contains(p, c.condition) || strings.Contains(p, "Seq Scan") ||
			strings.Contains(p, "Sort") {
			t.Errorf("the plan is\n%s", p)
		}
	}
}

// The store reads the clock after it has locked the rows, so a caller that waited decides at a later time.
func TestClockIsReadAfterTheLocks(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		first, second := open(t, url), open(t, url)
		take(t, first, 0, "k", 1)
		key := counterKey(limit.Key{Group: "k"})
		holding := make(chan struct{})
		var released limit.Instant
		var done sync.WaitGroup
		done.Go(func() {
			err := first.do(soon(t), "hold", &plain{keys: [][]byte{key}, then: func([][]byte, limit.Instant) ([]row, [][]byte) {
				close(holding)
				time.Sleep(300 * time.Millisecond)
				return nil, nil
			}})
			if err != nil {
				t.Error(err)
			}
		})
		<-holding
		began := limit.InstantOf(time.Now())
		v := take(t, second, 0, "k", 1)
		done.Wait()
		released = began.Add(200 * time.Millisecond)
		if v.At < released {
			t.Errorf("decided at %d, %v after it began to wait for 300ms", v.At, v.At.Sub(began))
		}
	})
}

// A database clock that is set back or forward, as MySQL's may be for a session, is the one that decides,
// and admits what package limit does then.
func TestClockThatIsSet(t *testing.T) {
	for _, engine := range []string{testenv.MariaDB, testenv.MySQL} {
		t.Run(engine, func(t *testing.T) {
			url := testenv.SharedDatabase(t, engine).CreateDatabase("limits")
			migrate(t, url)
			b := open(t, url)
			b.db.Write.SetMaxOpenConns(1)
			l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 10, Window: time.Minute})
			now := time.Now().Unix()
			states, scratch := make([]limit.State, 1), make([]limit.State, 1)
			for _, step := range []int64{0, 5, -3600, -3599, 2, -50, 10, 0} {
				execute(t, b, fmt.Sprintf("SET timestamp = %d", now+step))
				for range 4 {
					v := try(soon(t), b, ask(l, 1, "k"))[0]
					check(t, v.Err)
					if v.At != limit.Instant(now+step)*1_000_000 {
						t.Fatalf("decided at %d, the clock shows %d", v.At, now+step)
					}
					var want limit.Verdict
					req := ask(l, 1, "k")
					limit.Decide(states, &req, v.At, &want, scratch)
					if v.Admitted != want.Admitted || v.Outcomes[0] != want.Outcomes[0] {
						t.Errorf("step %d: %+v, want %+v", step, v, want)
					}
				}
			}
		})
	}
}

// The janitor deletes what has ended, page by page, and passes over what is in use.
func TestJanitorDeletesWhatHasEnded(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		b := open(t, url)
		var rows []row
		now := limit.InstantOf(time.Now())
		for i := range 2500 {
			r := row{key: fmt.Appendf(nil, "x%05d", i), state: []byte{}, ends: now.Add(-2 * time.Minute)}
			switch i % 5 {
			case 0:
				r.ends = now.Add(-30 * time.Second) // callers' clocks may differ
			case 1:
				r.ends = now.Add(time.Hour)
			}
			rows = append(rows, r)
		}
		for first := 0; first < len(rows); first += 500 {
			putRows(t, b, rows[first:first+500])
		}
		if b.conf.dialect.Name != "sqlite" { // where a transaction has all rows
			holder := open(t, url)
			tx, err := holder.db.Begin(soon(t), "hold")
			check(t, err)
			lock := holder.conf.dialect.expired([][]byte{rows[2].key, rows[1002].key}, 1<<62)
			lock.Each = func(func(...any) error) error { return nil }
			_, err = tx.Run(soon(t), "hold", lock)
			check(t, err)
			b.walk(t, 3)
			if n := number64(t, b, "SELECT COUNT(*) FROM HEADGATE_STATE"); n != 1002 {
				t.Errorf("%d rows are left, want 1002, two of them in use", n)
			}
			tx.Rollback()
		}
		b.walk(t, 3)
		if n := number64(t, b, "SELECT COUNT(*) FROM HEADGATE_STATE"); n != 1000 {
			t.Errorf("%d rows are left, want 1000", n)
		}
		if n := b.swept.Load(); n != 1500 {
			t.Errorf("%d rows were deleted by the figures, want 1500", n)
		}
	})
}

// The janitor walks by itself, and again, page after page.
func TestJanitorWalksByItself(t *testing.T) {
	conf, err := Parse("sqlite:" + filepath.Join(t.TempDir(), "limits.db"))
	check(t, err)
	conf.Sweep = 50 * time.Millisecond
	b, err := Open(conf)
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	_, err = b.Migrate(soon(t))
	check(t, err)
	for range 2 {
		var rows []row
		for i := range pageRows + 100 {
			rows = append(rows, row{key: fmt.Appendf(nil, "x%05d", i), state: []byte{},
				ends: limit.InstantOf(time.Now().Add(-2 * endedFor))})
		}
		before := b.swept.Load()
		putRows(t, b, rows)
		testenv.Eventually(t, 10*time.Second, "delete the expired rows", func() string {
			if n := b.swept.Load() - before; n != int64(len(rows)) {
				return fmt.Sprintf("%d of %d are deleted", n, len(rows))
			}
			return ""
		})
	}
}

// putRows writes rows, whose keys are in order, as they are.
func putRows(t *testing.T, b *Backend, rows []row) {
	t.Helper()
	var keys [][]byte
	for i := range rows {
		keys = append(keys, rows[i].key)
	}
	check(t, b.do(soon(t), "put",
		&plain{keys: keys, then: func([][]byte, limit.Instant) ([]row, [][]byte) { return rows, nil }}))
}

// walk goes through the whole table, in at most so many pages.
func (b *Backend) walk(t *testing.T, pages int) {
	t.Helper()
	var after []byte
	for range pages {
		var err error
		after, err = b.sweepPage(soon(t), after, endedFor)
		check(t, err)
		if after == nil {
			return
		}
	}
	t.Errorf("the walk is not over after %d pages", pages)
}
