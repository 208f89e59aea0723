package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// history returns all entries of a key, or of all, the newest first, read by pages.
func history(t testing.TB, s *Store, key string) (all []table.Entry) {
	t.Helper()
	const n = 7
	for before := int64(0); ; before = all[len(all)-1].Number {
		page, err := s.History(soon(t), key, before, n)
		check(t, err)
		all = append(all, page...)
		if len(page) < n {
			return all
		}
	}
}

// lines are entries as text, without numbers and times.
func lines(entries []table.Entry) (all []string) {
	text := func(r *table.Revision) string {
		if r == nil {
			return "none"
		}
		return fmt.Sprintf("%s %d %v %v v%d", policies.TypeOf(r.Algorithm), r.Capacity, r.Refill, r.Window, r.Version)
	}
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%d %s by %q: %s -> %s", e.Generation, e.Key, e.By, text(e.Before), text(e.After)))
	}
	return all
}

func wantLines(t testing.TB, got []table.Entry, want ...string) {
	t.Helper()
	if l := lines(got); !slices.Equal(l, want) {
		t.Errorf("the history is\n%s\nwant\n%s", strings.Join(l, "\n"), strings.Join(want, "\n"))
	}
}

// TestHistoryHasEachChange, and nothing else: no dry run, no change to the same figures, and nothing of
// a transaction that was refused or undone.
func TestHistoryHasEachChange(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s := open(t, url)
		if past := history(t, s, ""); len(past) != 0 {
			t.Fatalf("a new history has %v", lines(past))
		}
		bucket := policies.Figures{Algorithm: limit.TokenBucket, Capacity: 100, Refill: 250_000, Window: 60 * policies.One}
		hostile := "shell:<img src=x onerror=alert(1)>\n'; DROP TABLE HEADGATE_POLICY; -- é" + strings.Repeat("x", 50)
		apply(t, s, set("user:alice", bucket), set("user:Alice", window(1, 60)))
		_, err := s.Apply(soon(t), []table.Edit{set("user:alice", window(2, 60))}, hostile, 0, false)
		check(t, err)
		apply(t, s, set("user:alice", window(2, 60)), removal("user:nobody"))
		for _, dryRun := range []bool{true, false} {
			refused := table.Edit{Key: "user:Alice", Figures: window(9, 9), If: table.IfVersion, Version: 7}
			if _, err := s.Apply(soon(t), []table.Edit{set("user:alice", window(8, 8)), refused}, "test", 0,
				dryRun); !errors.Is(err, table.ErrVersion) {
				t.Errorf("a change of another version: %v", err)
			}
		}
		_, err = s.Apply(soon(t), []table.Edit{set("user:alice", window(8, 8)), removal("user:Alice")}, "test", 0, true)
		check(t, err)
		ended, stop := context.WithCancel(soon(t))
		stop()
		if _, err := s.Apply(ended, []table.Edit{set("user:alice", window(8, 8))}, "test", 0, false); err == nil {
			t.Error("a change whose caller is gone was made")
		}
		apply(t, s, removal("user:alice"))
		apply(t, s, set("user:alice", window(3, 60)), set("other", window(0, 1)))
		want := []string{
			`4 user:alice by "test": none -> SLIDING_WINDOW_COUNTER 3 0 60 v1`,
			`3 user:alice by "test": SLIDING_WINDOW_COUNTER 2 0 60 v2 -> none`,
			fmt.Sprintf(`2 user:alice by %q: TOKEN_BUCKET 100 0.25 60 v1 -> SLIDING_WINDOW_COUNTER 2 0 60 v2`, hostile),
			`1 user:alice by "test": none -> TOKEN_BUCKET 100 0.25 60 v1`,
		}
		wantLines(t, history(t, s, "user:alice"), want...)
		wantLines(t, history(t, s, ""), `4 other by "test": none -> SLIDING_WINDOW_COUNTER 0 0 1 v1`, want[0],
			want[1], want[2],
			`1 user:Alice by "test": none -> SLIDING_WINDOW_COUNTER 1 0 60 v1`, want[3])
		wantLines(t, history(t, s, "user:nobody"))
		for _, e := range history(t, s, "") {
			if time.Since(e.At).Abs() > time.Hour {
				t.Errorf("%v was made at %v", lines([]table.Entry{e}), e.At)
			}
		}
	})
}

// TestHistoryIsBounded compares the history with one that is cut by hand, over changes by chance.
func TestHistoryIsBounded(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s, rng := open(t, url), random.Rand(t, 1)
		s.keep = bounds{ofKey: 3, all: 40}
		var all []string // in their order, before the history was cut
		var keys []string
		for round := range random.Times(25, 300) {
			var edits []table.Edit
			most := 8
			if round%9 == 8 {
				most = 60 // more than there is room for
			}
			for _, n := range rng.Perm(70)[:1+rng.IntN(most)] {
				edits = append(edits, set(fmt.Sprintf("k%d", n*n/70), window(rng.Int64N(1e6), 60)))
			}
			slices.SortFunc(edits, func(a, b table.Edit) int { return cmp.Compare(a.Key, b.Key) })
			edits = slices.CompactFunc(edits, func(a, b table.Edit) bool { return a.Key == b.Key })
			for i, o := range apply(t, s, edits...) {
				if o.Changed() {
					keys = append(keys, edits[i].Key)
					all = append(all, fmt.Sprintf("%s %d", edits[i].Key, o.After.Capacity))
				}
			}
			var want, got []string
			of := map[string]int{}
			for i := len(all) - 1; i >= max(0, len(all)-int(s.keep.all)); i-- {
				if of[keys[i]]++; of[keys[i]] <= int(s.keep.ofKey) {
					want = append(want, all[i])
				}
			}
			for _, e := range history(t, s, "") {
				got = append(got, fmt.Sprintf("%s %d", e.Key, e.After.Capacity))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("round %d: the history is\n%v, want\n%v", round, got, want)
			}
		}
		// With less room than before it gets shorter with each change, until it fits.
		s.keep = bounds{ofKey: 3, all: 10}
		for i := range 20 {
			apply(t, s, set(fmt.Sprintf("new%d", i), window(1, 60)))
		}
		for range 10 {
			apply(t, s, set("new", window(rng.Int64N(1e15), 60)))
		}
		if n := len(history(t, s, "")); n > 10 {
			t.Errorf("%d entries, want at most 10", n)
		}
	})
}

// TestHistoryOfParallelChanges: it is complete and in order, and each change begins where the one before
// it has ended.
func TestHistoryOfParallelChanges(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		const processes, keys = 5, 4
		changes := random.Times(100, 200)
		errs := make(chan error, changes)
		var made atomic.Int64
		for p := range processes {
			s := open(t, url)
			for i := p; i < changes; i += processes {
				go func() {
					done, err := s.Apply(soon(t), []table.Edit{set(fmt.Sprintf("user:%d", i%keys), window(int64(i), 60))},
						fmt.Sprint("editor ", p), 0, false)
					if err == nil && done[0].Changed() {
						made.Add(1)
					}
					errs <- err
				}()
			}
		}
		for range changes {
			check(t, <-errs)
		}
		s := open(t, url)
		all := history(t, s, "")
		if int64(len(all)) != made.Load() || made.Load() != int64(changes) {
			t.Errorf("%d entries of %d changes, of which %d were made", len(all), changes, made.Load())
		}
		for i := range all {
			if all[i].Number != int64(len(all)-i) || all[i].Generation != all[i].Number {
				t.Errorf("entry %d has the number %d and generation %d", len(all)-i, all[i].Number, all[i].Generation)
			}
		}
		for k := range keys {
			chained(t, s, fmt.Sprintf("user:%d", k))
		}
	})
}

// chained checks that each change of a key begins where the one before it has ended, and that the
// last one has led to the policy.
func chained(t *testing.T, s *Store, key string) (n int) {
	t.Helper()
	same := func(a, b *table.Revision) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
	var now *table.Revision
	p, ok, err := s.Get(soon(t), key)
	check(t, err)
	if ok {
		now = &table.Revision{Figures: p.Figures, Version: p.Version}
	}
	past := history(t, s, key)
	for _, e := range past {
		if !same(e.After, now) {
			t.Fatalf("%s: what follows is %+v, in\n%s", key, now, strings.Join(lines(past), "\n"))
		}
		now = e.Before
	}
	if now != nil {
		t.Fatalf("%s: nothing says where %+v comes from", key, now)
	}
	return len(past)
}

// TestHistoryOfChangesWhoseAnswersAreLost cuts the connection before each answer of the database in
// turn, the one to the commit included: the history has the change if it was made, and only then.
func TestHistoryOfChangesWhoseAnswersAreLost(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(engine, func(t *testing.T) {
			direct := testenv.SharedDatabase(t, engine).CreateDatabase("policies")
			s := open(t, direct)
			_, err := s.Migrate(soon(t))
			check(t, err)
			made, lost := 0, 0
			for answers := int64(0); ; answers++ {
				if answers == 100 {
					t.Fatal("a change needs more than 100 answers")
				}
				address, err := url.Parse(direct)
				check(t, err)
				var first, cut atomic.Bool
				address.Host = dbtest.Relay(t, address.Host, func() func(bool) bool {
					if first.Swap(true) {
						return func(bool) bool { return !cut.Load() } // no connection after that one
					}
					var asked, n atomic.Int64
					return func(client bool) bool {
						if client {
							asked.Store(1)
							return true
						}
						if asked.Swap(0) == 1 && n.Add(1) > answers {
							cut.Store(true)
						}
						return !cut.Load()
					}
				})
				through, err := openStore(address.String())
				check(t, err)
				_, applied := through.Apply(soon(t), []table.Edit{set("user:alice", window(answers, 60))}, "test", 0, false)
				_ = through.Close() // its connection may be cut
				n := 0
				until(t, "the database has ended the transaction", func() bool {
					// It holds the lock of the state.
					_, err := s.Watch(soon(t), 0)
					return err == nil
				})
				if n = chained(t, s, "user:alice"); n > made && applied != nil {
					lost++
				}
				if n < made || n > made+1 || applied == nil && n != made+1 {
					t.Errorf("with %d answers: %v, and %d entries after %d", answers, applied, n, made)
				}
				made = n
				if applied == nil && !cut.Load() {
					break
				}
			}
			if lost == 0 {
				t.Error("no change was made whose answer was lost")
			}
		})
	}
}

// TestSchemaOfVersionOne: with policies in it, it is brought up to date. A program that knows nothing
// newer goes on beside it: it reads and changes policies, and writes no history.
func TestSchemaOfVersionOne(t *testing.T) {
	eachEmpty(t, func(t *testing.T, url string) {
		s := open(t, url)
		migrateTo(t, s, url, 1)
		older(t, s, set("user:alice", window(1, 60)), set("user:bob", window(1, 60)))

		// A newer program on the old schema: it follows policies, and says what is to be done
		// before it changes them.
		in := new(policies.Set)
		check(t, table.NewFollower(s, in, quiet).Poll(soon(t)))
		if !has(in, "user:alice", window(1, 60)) {
			t.Error("the policies of the old schema are not in force")
		}
		if _, err := s.Apply(soon(t), []table.Edit{set("user:alice", window(2, 60))}, "test", 0, false); err == nil ||
			!strings.Contains(err.Error(), "headgate migrate") {
			t.Errorf("a change on the old schema: %v", err)
		}
		if p, _, err := s.Get(soon(t), "user:alice"); err != nil || p.Capacity != 1 {
			t.Errorf("the policy is %+v, %v", p, err)
		}

		migrateTo(t, s, url, 2)
		wantLines(t, history(t, s, ""))
		apply(t, s, set("user:alice", window(2, 60)))
		older(t, s, set("user:alice", window(3, 60)), removal("user:bob"))
		apply(t, s, set("user:alice", window(4, 60)), set("user:bob", window(4, 60)))
		wantLines(t, history(t, s, ""),
			`4 user:bob by "test": none -> SLIDING_WINDOW_COUNTER 4 0 60 v1`,
			`4 user:alice by "test": SLIDING_WINDOW_COUNTER 3 0 60 v3 -> SLIDING_WINDOW_COUNTER 4 0 60 v4`,
			`2 user:alice by "test": SLIDING_WINDOW_COUNTER 1 0 60 v1 -> SLIDING_WINDOW_COUNTER 2 0 60 v2`)
		check(t, table.NewFollower(s, in, quiet).Poll(soon(t)))
		if !has(in, "user:alice", window(4, 60)) || !has(in, "user:bob", window(4, 60)) {
			t.Error("the last changes are not in force")
		}
	})
}

// older does edits as the programs before the history did: with the same statements, apart from those
// of the history.
func older(t testing.TB, s *Store, edits ...table.Edit) {
	t.Helper()
	tx, err := s.db.Write.BeginTx(soon(t), nil)
	check(t, err)
	defer func() { _ = tx.Rollback() }()
	e := &edition{s: s, tx: tx, by: "older"}
	e.state, err = s.state(soon(t), tx, s.d.lock)
	check(t, err)
	e.state.Generation++
	for i := range edits {
		before, err := s.byKey(soon(t), tx, []string{edits[i].Key})
		check(t, err)
		o, err := e.plan(&edits[i], before[edits[i].Key])
		check(t, err)
		e.done = append(e.done, o)
		if o.After == nil {
			check(t, e.remove(soon(t), []string{edits[i].Key}))
			continue
		}
		check(t, e.put(soon(t), []*table.Policy{o.After}, []string{edits[i].Key}))
	}
	check(t, e.finish(soon(t), 0))
	check(t, tx.Commit())
}

// TestRightsOnDataSuffice: a user that may not change the schema keeps a history all the same.
func TestRightsOnDataSuffice(t *testing.T) {
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB, testenv.MySQL} {
		t.Run(engine, func(t *testing.T) {
			address := testenv.SharedDatabase(t, engine).CreateDatabase("policies")
			admin := open(t, address)
			_, err := admin.Migrate(soon(t))
			check(t, err)
			u, err := url.Parse(address)
			check(t, err)
			database := strings.TrimPrefix(u.Path, "/")
			name := database + "_user"
			u.User = url.UserPassword(name, "secret")
			run := func(texts ...string) {
				for _, text := range texts {
					_, err := admin.db.Write.ExecContext(soon(t), text)
					check(t, err)
				}
			}
			if admin.db.Dialect.Name == "postgres" {
				run("CREATE ROLE "+name+" LOGIN PASSWORD 'secret'",
					"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+name)
				defer run("DROP OWNED BY "+name, "DROP ROLE "+name)
			} else {
				run("CREATE USER "+name+" IDENTIFIED BY 'secret'", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+database+
					".* TO "+name)
				defer run("DROP USER " + name)
			}
			user, err := openStore(u.String())
			check(t, err)
			defer user.Close()
			if applied, err := user.Migrate(soon(t)); err != nil || len(applied) > 0 {
				t.Errorf("applied %v, %v", applied, err)
			}
			user.keep = bounds{ofKey: 2, all: 3}
			for i := range 5 {
				apply(t, user, set("a", window(int64(i), 60)), set(fmt.Sprint("b", i), window(1, 1)))
			}
			if n := len(history(t, user, "")); n != 3 {
				t.Errorf("%d entries, want 3", n)
			}
		})
	}
}
