package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/random"
)

// logOf is a sliding log of so many units per hour.
func logOf(most int64) *limit.Limit {
	return limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: most, Window: time.Hour})
}

var manyPerHour = logOf(maxLog)

func logKey(group string) limit.Key { return limit.Key{Group: group, Limit: "l"} }

// logAt asks for units of a log at an instant.
func logAt(group string, l *limit.Limit, at limit.Instant, cost int64) limit.Request {
	return limit.Request{At: at, Ops: []limit.Op{{Key: logKey(group), Limit: l, Cost: cost}}}
}

// logStart is an instant whose window is not over for a while.
func logStart() limit.Instant { return limit.InstantOf(time.Now().Add(10 * time.Minute)) }

// fillLog records so many units of l, each a millisecond after the one before.
func fillLog(t testing.TB, b *Backend, group string, l *limit.Limit, from limit.Instant, units int) {
	t.Helper()
	for first := 0; first < units; first += 500 {
		var reqs []limit.Request
		for i := first; i < min(first+500, units); i++ {
			reqs = append(reqs, logAt(group, l, from+limit.Instant(i)*1000, 1))
		}
		for _, v := range try(soon(t), b, reqs...) {
			check(t, v.Err)
			if !v.Admitted {
				t.Fatalf("%+v", v)
			}
		}
	}
}

const parts = "SELECT COUNT(*) FROM HEADGATE_LOG"

// Long logs decide as package limit does on the whole of them, and no part is left behind or lost.
func TestLongLogsDecideLikeTheModel(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		r, most := random.Rand(t, 1), int64(0)
		for range random.Times(2, 6) {
			b := open(t, url)
			m := &longModel{r: r, b: b, group: fmt.Sprint("g", r.Int64()), now: logStart(), states: make([]limit.State, 1)}
			spec := limit.Spec{Algorithm: limit.SlidingLog, Max: 3000, Window: 30 * time.Second,
				Overflow: []limit.Overflow{limit.Refuse, limit.Saturate, limit.Debt}[r.IntN(3)]}
			m.limits = []*limit.Limit{limit.MustNew(spec)}
			spec.Max = []int64{900, 2500, 6000}[r.IntN(3)]
			spec.Window = []time.Duration{20 * time.Second, 30 * time.Second}[r.IntN(2)]
			m.limits = append(m.limits, limit.MustNew(spec))
			for range 80 {
				m.slice(t)
				most = max(most, number64(t, b, parts))
				if stored, listed := number64(t, b, parts), number64(t, b, "SELECT M FROM HEADGATE_STATE"); stored != listed {
					t.Fatalf("there are %d parts, and the row has %d", stored, listed)
				}
			}
			check(t, b.Forget(soon(t), []limit.Key{logKey(m.group)}))
			if n := number64(t, b, parts); n != 0 {
				t.Fatalf("%d parts are left of a log that was forgotten", n)
			}
		}
		if most < 2 { // a small limit alone has none
			t.Errorf("no log had more than %d parts: nothing is tested", most)
		}
	})
}

// A longModel sends random requests for one key, and knows the right answers.
type longModel struct {
	r      *rand.Rand
	b      *Backend
	group  string
	limits []*limit.Limit
	now    limit.Instant
	states []limit.State
	wait   time.Duration
}

// slice sends up to 300 requests at once, most of them for one unit.
func (m *longModel) slice(t *testing.T) {
	t.Helper()
	r := m.r
	reqs := make([]limit.Request, 1+r.IntN(300))
	pace := []int64{500, 4000, 20_000, 20_000}[r.IntN(4)]
	for i := range reqs {
		switch r.IntN(5000) {
		case 0, 1:
			m.now = m.now.Add(m.wait)
		case 2:
			m.now += limit.Instant(r.Int64N(40_000_000))
		case 3, 4:
			m.now -= limit.Instant(r.Int64N(2_000_000))
		default:
			m.now += limit.Instant(r.Int64N(pace))
		}
		l := m.limits[0]
		if r.IntN(1000) == 0 {
			m.limits[0], m.limits[1] = m.limits[1], m.limits[0]
		}
		cost := int64(1)
		switch r.IntN(4000) {
		case 0:
			cost = r.Int64N(l.Max() + 2)
		case 1:
			cost = -r.Int64N(1500)
		case 2, 3, 4, 5, 6, 7, 14, 15, 16:
			cost = -1
		case 8, 9, 10, 11, 12, 13:
			cost = 0
		}
		reqs[i] = logAt(m.group, l, m.now, cost)
	}
	for i, v := range try(soon(t), m.b, reqs...) {
		var want limit.Verdict
		limit.Decide(m.states, &reqs[i], reqs[i].At, &want, nil)
		if v.Err != nil || v.Admitted != want.Admitted || v.Outcomes[0] != want.Outcomes[0] {
			t.Fatalf("request %d of %d, cost %d of %v: %+v, want %+v", i, len(reqs), reqs[i].Ops[0].Cost,
				reqs[i].Ops[0].Limit, v, want)
		}
		if want.Outcomes[0].Retry > 0 && want.Outcomes[0].Retry < time.Minute {
			m.wait = want.Outcomes[0].Retry
		}
	}
}

// A slice on long logs takes two round trips. What waits for a unit deep inside, or gives many back, takes
// one more.
func TestLongLogsTakeTwoRoundTrips(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		l, at := logOf(5000), logStart()
		fillLog(t, open(t, url), "g", l, at, 5000)
		at = at.Add(5 * time.Second)
		counter := dbtest.CountTrips(t, hostOf(t, url))
		b := open(t, through(t, url, counter.Addr))
		b.db.Write.SetMaxOpenConns(1)
		fillLog(t, b, "warm", l, at.Add(-5*time.Second), 3000) // the server learns the statements
		for _, cost := range []int64{4500, -2000, 1} {
			for range 2 {
				check(t, try(soon(t), b, logAt("warm", l, at, cost))[0].Err)
			}
		}
		for i, c := range []struct {
			after time.Duration
			cost  int64
			trips int64
		}{
			{0, 1, 2}, {0, 0, 2}, {0, 200, 2}, {0, 3000, 3},
			{time.Hour - 5*time.Second + 10*time.Millisecond, 1, 2}, {0, 1, 2}, {0, -1, 2}, {0, -4000, 3},
		} {
			at = at.Add(c.after)
			before := counter.Count()
			check(t, try(soon(t), b, logAt("g", l, at, c.cost))[0].Err)
			if n := counter.Count() - before; n != c.trips {
				t.Errorf("step %d, cost %d: %d round trips, want %d", i, c.cost, n, c.trips)
			}
		}
	})
}

// Many handles fill two long logs to their limit and not beyond, while its parts are cut off and end.
func TestManyHandlesShareLongLogs(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		const units, handles = 2000, 3
		l := logOf(units)
		var admitted, refused atomic.Int64
		var all sync.WaitGroup
		for range handles {
			b := open(t, url)
			all.Go(func() {
				for refused.Load() < 100 {
					reqs := make([]limit.Request, 20)
					for i := range reqs {
						reqs[i] = logAt([]string{"g", "h"}[i%2], l, limit.InstantOf(time.Now())+limit.Instant(i), 1)
					}
					for _, v := range try(soon(t), b, reqs...) {
						switch {
						case v.Err != nil:
							t.Error(v.Err)
							return
						case v.Admitted:
							admitted.Add(1)
						default:
							refused.Add(1)
						}
					}
				}
			})
		}
		all.Wait()
		b := open(t, url)
		if n := admitted.Load(); n != 2*units {
			t.Errorf("%d were admitted, want %d", n, 2*units)
		}
		if stored, listed := number64(t, b, parts), number64(t, b, "SELECT SUM(M) FROM HEADGATE_STATE"); stored != listed ||
			stored == 0 {
			t.Errorf("there are %d parts, and the row has %d", stored, listed)
		}
	})
}

// The janitor deletes the parts of logs with their rows, not too many at once.
func TestJanitorDeletesParts(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		b := open(t, url)
		for i := range 3 {
			fillLog(t, b, fmt.Sprint("old", i), logOf(3000), limit.InstantOf(time.Now().Add(-3*time.Hour)), 2500)
		}
		fillLog(t, b, "new", logOf(3000), logStart(), 2500)
		each := number64(t, b, "SELECT M FROM HEADGATE_STATE WHERE ENDS_US > "+fmt.Sprint(time.Now().UnixMicro()))
		if n := number64(t, b, parts); n != 4*each || each == 0 {
			t.Fatalf("there are %d parts, %d of a log: nothing is tested", n, each)
		}
		b.walk(t, 2)
		if n := number64(t, b, parts); n != each {
			t.Errorf("%d parts are left, want the %d of a log that counts", n, each)
		}
	})
}

// One transaction of the janitor deletes 100 rows or 1,000 parts, and one log at least.
func TestJanitorBoundsWhatItDeletesAtOnce(t *testing.T) {
	var rows []endedRow
	for i := range 250 {
		rows = append(rows, endedRow{fmt.Append(nil, i), []int64{0, 400, 1600}[i/150]})
	}
	var counts []int
	for len(rows) > 0 {
		var keys [][]byte
		if keys, rows = droppedAtOnce(rows); len(counts) < 4 || len(keys) != 2 {
			counts = append(counts, len(keys))
		}
	}
	if want := []int{100, 52, 2, 2}; !slices.Equal(counts, want) {
		t.Errorf("%v rows at once, want %v and then 2", counts, want)
	}
	for m, key := range map[int64]limit.Key{3: {Group: "g", Limit: "llog"}, 0: {Group: "g", Limit: "wwindow"}} {
		if n := partsOfRow(counterKey(key), 3); n != m {
			t.Errorf("%v has %d parts, want %d", key, n, m)
		}
	}
}

// A log whose part is gone or damaged fails the requests that need it, alone, until the part has ended.
func TestLostPartsAreNoticed(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		b := open(t, url)
		l, at := logOf(3000), logStart()
		fillLog(t, b, "g", l, at, 3000)
		for i, harm := range []string{"UPDATE HEADGATE_LOG SET PART = (SELECT STATE FROM HEADGATE_STATE WHERE N = 1)",
			"DELETE FROM HEADGATE_LOG"} {
			take(t, b, 0, fmt.Sprint("one", i), 1)
			if i == 0 {
				check(t, b.Forget(soon(t), []limit.Key{{Group: "one1"}}))
			}
			execute(t, b, harm)
			out := try(soon(t), b, logAt("g", l, at.Add(3*time.Second), 1), logAt("other", l, at, 1))
			if !errors.Is(out[0].Err, backends.ErrCorrupt) || !errors.Is(out[0].Err, backends.ErrNotApplied) {
				t.Errorf("%s: %+v", harm, out[0])
			}
			if out[1].Err != nil || !out[1].Admitted {
				t.Errorf("%s: another key: %+v", harm, out[1])
			}
		}
		if v := try(soon(t), b, logAt("g", l, at.Add(2*time.Hour), 1))[0]; v.Err != nil || v.Outcomes[0].Remaining != 2999 {
			t.Errorf("after all parts have ended: %+v", v)
		}
	})
}

// A slice that needs more parts than are read at once is decided in several transactions, in its order.
func TestSlicesThatNeedManyPartsAreDivided(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		b := open(t, url)
		d, most := *b.conf.dialect, 0
		readParts := d.readParts
		d.readParts = func(w *work, ctx context.Context, op string, of []part) error {
			most = max(most, len(of))
			return readParts(w, ctx, op, of)
		}
		b.conf.dialect = &d
		at := logStart()
		l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 5000, Window: time.Hour, Overflow: limit.Debt})
		const each = maxMissing/3 + 1
		var reqs []limit.Request
		for g := range 4 { // debt makes all of a log anew
			group := fmt.Sprint("g", g)
			r := row{key: counterKey(logKey(group)), ends: at.Add(2 * time.Hour)}
			s := limit.State{N: 2 * each, M: each}
			for i := range each {
				last := at + limit.Instant(10*i)
				text, _ := limit.State{At: last, N: 2,
					Log: []limit.Record{{At: last - 3, N: 1}, {At: last, N: 1}}}.AppendBinary(nil)
				r.add = append(r.add, part{r.key, int64(last), text})
				s.At, s.Log = last, append(s.Log, limit.Record{At: last, N: 2})
			}
			r.state, _ = s.AppendBinary(nil)
			putRows(t, b, []row{r})
			reqs = append(reqs, logAt(group, l, s.At+1, 5000), logAt(group, l, s.At+2, 1), logAt(group, l, s.At+2, -4000))
		}
		for i, v := range try(soon(t), b, reqs...) {
			check(t, v.Err)
			if v.Admitted != (i%3 == 2) || i%3 == 0 && v.Outcomes[0].Taken != 5000 {
				t.Errorf("request %d: %+v", i, v)
			}
		}
		if n := number64(t, b, parts); n != 0 || most == 0 || most > maxMissing {
			t.Errorf("%d parts are left, and up to %d were read at once, want at most %d", n, most, maxMissing)
		}
	})
}

// The view of requests shows those in parts, too.
func TestViewShowsLongLogs(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, onMariaDB) {
			return // see README.md
		}
		b := open(t, url)
		at := limit.InstantOf(time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)) + 123_456
		fillLog(t, b, "g", logOf(3000), at, 1500)
		b.wantLog(t, at, 1500)
	})
}

// wantLog checks the view of a log that fillLog has made.
func (b *Backend) wantLog(t *testing.T, at limit.Instant, units int) {
	t.Helper()
	var want []string
	for i := range units {
		want = append(want, (at+limit.Instant(i)*1000).Time().Format("2006-01-02 15:04:05.000000")+" 1")
	}
	got := b.view(t, "REQUEST_TS, UNITS FROM HEADGATE_REQUESTS ORDER BY REQUEST_TS")
	if !slices.Equal(got, want) {
		t.Errorf("the view has %d rows, want %d; the first are %q, want %q", len(got), len(want),
			got[:min(len(got), 3)], want[:3])
	}
}

// before lists the scripts of a schema that are of an older version.
func before(t *testing.T, version string) sqldb.Schema {
	t.Helper()
	old, files := schema(), fstest.MapFS{}
	check(t, fs.WalkDir(old.Files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.Contains(name, "/"+version) {
			return err
		}
		text, err := fs.ReadFile(old.Files, name)
		files[name] = &fstest.MapFile{Data: text}
		return err
	}))
	old.Files = files
	return old
}

// A database in which a version without parts has kept logs is migrated, and they go on.
func TestLogsGoOnAfterMigration(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, onMariaDB) {
			return // its scripts are run by the test itself
		}
		b := open(t, url)
		_, err := b.db.Migrate(soon(t), before(t, "V4__"))
		check(t, err)
		l, at := logOf(1000), logStart()
		fillLog(t, b, "g", l, at, 900)
		if err := b.Ping(soon(t)); !errors.Is(err, backends.ErrUnavailable) ||
			!strings.Contains(err.Error(), "V4__long_logs") {
			t.Errorf("a ping says %v, want what the schema lacks", err)
		}
		if applied, err := b.Migrate(soon(t)); err != nil || len(applied) != 1 {
			t.Fatalf("applied %v, %v", applied, err)
		}
		b.wantLog(t, at, 900)
		fillLog(t, b, "g", logOf(4000), at+900_000, 2000)
		if n := number64(t, b, parts); n == 0 {
			t.Error("the log has no parts")
		}
		b.wantLog(t, at, 2900)
	})
}

// A process that goes away before the commit leaves neither parts nor a row that needs them.
func TestLogsAreCutOffInOneTransaction(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		b := open(t, url)
		l, at := logOf(3000), logStart()
		fillLog(t, b, "g", l, at, 1000)
		ctx, cancel := context.WithCancel(soon(t))
		defer cancel()
		tx, err := b.conf.dialect.begin(b.db, ctx, "cut")
		check(t, err)
		s := &slice{reqs: []*limit.Request{ptr(logAt("g", l, at.Add(time.Minute), 1))}, out: []*limit.Verdict{{}}}
		w := work{b: b, tx: tx, task: s, keys: s.begin()}
		put, drop, err := w.read(ctx, "cut")
		check(t, err)
		if len(put) != 1 || len(put[0].add) == 0 {
			t.Fatalf("%d rows are written, and no part: nothing is tested", len(put))
		}
		for _, q := range b.conf.dialect.writes(&w, put, drop) {
			check(t, tx.Change(ctx, "cut", q))
		}
		tx.Rollback() // as the server does when the connection is lost
		if n := number64(t, b, parts); n != 0 {
			t.Errorf("%d parts are left", n)
		}
		if v := try(soon(t), b, logAt("g", l, at.Add(time.Minute), 0))[0]; v.Err != nil || v.Outcomes[0].Remaining != 2000 {
			t.Errorf("%+v", v)
		}
	})
}

func ptr[T any](v T) *T { return &v }
