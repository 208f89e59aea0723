package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A counted store counts what followers ask, and knows when changes were committed.
type counted struct {
	*Store
	asked   atomic.Int64
	applied func() // called when Apply has returned, after its commit
}

func (c *counted) State(ctx context.Context) (table.State, error) {
	c.asked.Add(1)
	return c.Store.State(ctx)
}

func (c *counted) Apply(ctx context.Context, edits []table.Edit, by string, us int64,
	dryRun bool) ([]table.Outcome, error) {
	done, err := c.Store.Apply(ctx, edits, by, us, dryRun)
	if !dryRun && c.applied != nil {
		c.applied()
	}
	return done, err
}

// TestChangesAreInForceEverywhere makes many changes in parallel, beside three followers with
// connections of their own, and looks all the time which policy each of them has: the old or the
// new one. It logs how long after the commit the last of them had it; only the long form, for a
// quiet machine, asserts that.
func TestChangesAreInForceEverywhere(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		old, changed := window(1, 60), window(1000, 1)
		changes := random.Times(30, 100)
		var editors []*Store
		for range 10 {
			editors = append(editors, open(t, url))
		}
		var edits []table.Edit
		for i := range changes {
			edits = append(edits, set(fmt.Sprintf("user:%d", i), old))
		}
		apply(t, open(t, url), edits...)
		var sets []*policies.Set
		for range 3 {
			sets = append(sets, follow(t, open(t, url)))
		}
		until(t, "all followers have read the policies", func() bool {
			for _, s := range sets {
				if s.Snapshot().Len() != changes {
					return false
				}
			}
			return true
		})

		var worst atomic.Int64 // µs from a commit until it was in force in the last process
		var decisions atomic.Int64
		change := func(i int) error {
			key := fmt.Sprintf("user:%d", i)
			var committed time.Time
			s := &counted{Store: editors[i%len(editors)], applied: func() { committed = time.Now() }}
			if _, err := table.NewEditor(s, nil).Apply(soon(t), []table.Edit{set(key, changed)}, "test",
				false); err != nil {
				return err
			}
			returned := time.Now()
			for _, p := range sets {
				for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
					f, ok := p.Snapshot().Find([]byte(key))
					decisions.Add(1)
					if ok && f == changed {
						break
					}
					if !ok || f != old || time.Now().After(deadline) {
						return fmt.Errorf("%s is %v, %v", key, f, ok)
					}
				}
			}
			// What was in force when Apply returned, after Settle, was so no later than that.
			if late := time.Since(returned); late > time.Millisecond {
				worst.Store(max(worst.Load(), time.Since(committed).Microseconds()))
			}
			return nil
		}
		stop := make(chan struct{})
		var deciding sync.WaitGroup
		for _, p := range sets {
			deciding.Add(1)
			go func() {
				defer deciding.Done()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Microsecond):
					}
					if f, ok := p.Snapshot().Find(fmt.Appendf(nil, "user:%d", i%changes)); !ok || f != old && f != changed {
						t.Errorf("a mixture: %v, %v", f, ok)
						return
					}
					decisions.Add(1)
				}
			}()
		}
		errs := make(chan error, changes)
		began := time.Now()
		for i := range changes {
			go func() { errs <- change(i) }()
		}
		for range changes {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		close(stop)
		deciding.Wait()
		t.Logf("%d changes in %v, %d look-ups; the latest came %v after its commit (0: none after %v)", changes,
			time.Since(began).Round(time.Millisecond),
			decisions.Load(), time.Duration(worst.Load())*time.Microsecond, table.Settle)
		if random.Times(0, 1) == 1 && worst.Load() > table.Settle.Microseconds() {
			t.Errorf("in force later than %v after the commit", table.Settle)
		}
	})
}

// TestIdleFollowersAskOnceASecond: also after a change, when its time is over.
func TestIdleFollowersAskOnceASecond(t *testing.T) {
	testenv.UseSQLite(t)
	s := open(t, "sqlite:"+t.TempDir()+"/policies.db")
	_, err := s.Migrate(soon(t))
	check(t, err)
	counts := &counted{Store: s}
	ctx, stop := context.WithCancel(context.Background())
	ended, began := make(chan struct{}), time.Now()
	go func() {
		defer close(ended)
		table.NewFollower(counts, new(policies.Set), quiet).Run(ctx)
	}()
	until(t, "the follower asks a few times", func() bool { return counts.asked.Load() >= 4 })
	n := counts.asked.Load()
	took := time.Since(began)
	stop()
	<-ended
	if most := int64(took/time.Second) + 1; n > most {
		t.Errorf("%d queries in %v, want at most %d", n, took, most)
	}
}

// TestFollowersOutliveTheirDatabase: what was read stays in force, and its age grows, while the
// database is away; what changed is in force when it is back.
func TestFollowersOutliveTheirDatabase(t *testing.T) {
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB, testenv.MySQL}[:random.Times(1, 3)] {
		t.Run(engine, func(t *testing.T) {
			server := testenv.StartDatabase(t, engine, testenv.Durable())
			s := open(t, server.CreateDatabase("policies"))
			_, err := s.Migrate(soon(t))
			check(t, err)
			apply(t, s, set("user:alice", window(2, 60)))
			in := follow(t, s)
			until(t, "the policy is in force", func() bool { return has(in, "user:alice", window(2, 60)) })
			server.Kill()
			until(t, "its age grows", func() bool {
				age, ok := in.Age(time.Now())
				return ok && age > 3*time.Second
			})
			if !has(in, "user:alice", window(2, 60)) {
				t.Error("the policy is not in force while the database is away")
			}
			if _, err := table.NewEditor(s, nil).Apply(soon(t), []table.Edit{removal("user:alice")}, "test",
				false); err == nil {
				t.Error("a change was made without the database")
			}
			server.Restart()
			until(t, "a change is made again", func() bool {
				_, err := table.NewEditor(s, nil).Apply(soon(t), []table.Edit{set("user:alice", window(3, 60))},
					"test", false)
				return err == nil
			})
			until(t, "it is in force", func() bool { return has(in, "user:alice", window(3, 60)) })
			if age, _ := in.Age(time.Now()); age > time.Minute {
				t.Errorf("the age is %v", age)
			}
		})
	}
}

// TestChangesAfterTheClockWasSetBack: what was announced by another clock, which was ahead, holds up no
// change, and has nobody look often for as long as that clock was ahead.
func TestChangesAfterTheClockWasSetBack(t *testing.T) {
	testenv.UseSQLite(t)
	s := open(t, "sqlite:"+t.TempDir()+"/policies.db")
	_, err := s.Migrate(soon(t))
	check(t, err)
	for _, ahead := range []struct{ from, until time.Duration }{
		{time.Hour, time.Hour + 10*time.Second},
		{-time.Second, 10 * 365 * 24 * time.Hour},
	} {
		st, err := s.State(soon(t))
		check(t, err)
		check(t, s.change(soon(t), s.db.Write, "UPDATE HEADGATE_POLICY_STATE SET WATCH_FROM_US = ?, WATCH_UNTIL_US = ?",
			st.Now+ahead.from.Microseconds(), st.Now+ahead.until.Microseconds()))
		if st, err = s.State(soon(t)); err != nil || st.Watched() {
			t.Errorf("%v: followers look often, %+v, %v", ahead, st, err)
		}
		edits := []table.Edit{set(fmt.Sprint("user:", ahead.from), window(2, 60))}
		if _, err = table.NewEditor(s, nil).Apply(soon(t), edits, "test", false); err != nil {
			t.Fatalf("%v: %v", ahead, err)
		}
		if st, err = s.State(soon(t)); err != nil || !st.Watched() || st.WatchUntil > st.Now+time.Minute.Microseconds() {
			t.Errorf("%v: after the change the state is %+v, %v", ahead, st, err)
		}
	}
}

// reads has what a follower reads.
type reads struct {
	*Store
	after []int64
}

func (r *reads) Read(ctx context.Context, after int64, each func(table.Row) error) (int64, error) {
	r.after = append(r.after, after)
	return r.Store.Read(ctx, after, each)
}

// TestManyChangesAreReadAsEverything: changes one by one take several times the memory of the policies,
// and an import may change them all.
func TestManyChangesAreReadAsEverything(t *testing.T) {
	testenv.UseSQLite(t)
	s := open(t, "sqlite:"+t.TempDir()+"/policies.db")
	_, err := s.Migrate(soon(t))
	check(t, err)
	r, in := &reads{Store: s}, new(policies.Set)
	f := table.NewFollower(r, in, quiet)
	check(t, f.Poll(soon(t)))
	for generation, n := range []int{1: 9_000, 2: 8_000} {
		if n == 0 {
			continue
		}
		check(t, s.change(soon(t), s.db.Write, `WITH RECURSIVE N(I) AS (SELECT 1 UNION ALL SELECT I + 1 FROM N WHERE I < ?)
			INSERT INTO HEADGATE_POLICY (POLICY_KEY, TYPE, CAPACITY, WINDOW_SECONDS, GENERATION)
			SELECT 'user:' || I, 'FIXED_WINDOW', ?, 60, ? FROM N WHERE TRUE
			ON CONFLICT (POLICY_KEY) DO UPDATE SET CAPACITY = excluded.CAPACITY, GENERATION = excluded.GENERATION`, n,
			generation, generation))
		check(t, s.change(soon(t), s.db.Write, "UPDATE HEADGATE_POLICY_STATE SET GENERATION = ?", generation))
		check(t, f.Poll(soon(t)))
		want := policies.Figures{Algorithm: limit.FixedWindow, Capacity: int64(generation), Window: 60 * policies.One}
		if !has(in, "user:1", want) || !has(in, fmt.Sprint("user:", n), want) || in.Snapshot().Len() != 9_000 {
			t.Errorf("generation %d: not all changes are in force", generation)
		}
	}
	if want := []int64{-1, 0, -1, 1}; !slices.Equal(r.after, want) {
		t.Errorf("it has read what came after %d, want %d", r.after, want)
	}
}

func TestEditorChecksEdits(t *testing.T) {
	testenv.UseSQLite(t)
	s := open(t, "sqlite::memory:")
	_, err := s.Migrate(soon(t))
	check(t, err)
	e := table.NewEditor(s, nil)
	for want, edits := range map[string][]table.Edit{
		"limit -1":        {set("a", window(-1, 60))},
		"the key is":      {set("a b", window(1, 60))},
		"empty":           {removal("")},
		"there twice":     {set("a", window(1, 60)), removal("a")},
		"more than 65536": {set(strings.Repeat("a", 1<<17), window(1, 60))},
	} {
		if _, err := e.Apply(soon(t), edits, "test", false); err == nil || !strings.Contains(err.Error(), want) ||
			len(err.Error()) > 1000 {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if _, err := e.Apply(soon(t), nil, strings.Repeat("x", 1000), false); err == nil {
		t.Error("a name of 1000 bytes was accepted")
	}
	if st, err := s.State(soon(t)); err != nil || st.Generation != 0 || st.WatchUntil != 0 {
		t.Errorf("the state is %+v, %v", st, err)
	}
}
