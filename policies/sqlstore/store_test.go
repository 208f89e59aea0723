package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

func TestPoliciesAreStored(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s := open(t, url)
		bucket := policies.Figures{Algorithm: limit.TokenBucket, Capacity: 100, Refill: 250_000, Window: 60 * policies.One}
		done := apply(t, s, set("user:alice", window(2, 60)), set("user:Alice", bucket),
			set("user:ali%20", window(0, 315360000)))
		for _, o := range done {
			if o.Before != nil || o.After.ID == 0 || o.After.Version != 1 || o.After.ChangedBy != "test" ||
				time.Since(o.After.ChangedAt).Abs() > time.Hour {
				t.Fatalf("made %+v of %+v", o.After, o.Before)
			}
			p, ok, err := s.Get(soon(t), o.After.Key)
			check(t, err)
			if !ok || p != *o.After {
				t.Errorf("got %+v, want %+v", p, *o.After)
			}
		}
		changed := apply(t, s, set("user:alice", window(3, 60)))[0]
		if changed.Before.Capacity != 2 || changed.After.Version != 2 || changed.After.ID != done[0].After.ID {
			t.Errorf("changed %+v into %+v", changed.Before, changed.After)
		}
		before, err := s.State(soon(t))
		check(t, err)
		if same := apply(t, s, set("user:alice", window(3, 60)), removal("user:nobody")); same[0].Changed() ||
			same[1].Changed() || same[0].After.Version != 2 {
			t.Errorf("the same figures changed %+v", same)
		}
		after, err := s.State(soon(t))
		check(t, err)
		if after.Generation != before.Generation || before.Generation != 2 || before.Policies != 3 {
			t.Errorf("generation %d, then %d, with %d policies; want 2 and 2 with 3", before.Generation, after.Generation,
				before.Policies)
		}
		if gone := apply(t, s, removal("user:alice"))[0]; gone.Before == nil || gone.After != nil {
			t.Errorf("removed: %+v", gone)
		}
		if _, ok, err := s.Get(soon(t), "user:alice"); ok || err != nil {
			t.Errorf("a removed policy is there: %v, %v", ok, err)
		}
	})
}

func TestEditsAreAllOrNone(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s := open(t, url)
		apply(t, s, set("a", window(1, 60)))
		for name, c := range map[string]struct {
			edit table.Edit
			want error
		}{
			"make what is there": {table.Edit{Key: "a", Figures: window(2, 60), If: table.IfAbsent},
				table.ErrExists},
			"change what is not": {table.Edit{Key: "b", Figures: window(2, 60), If: table.IfPresent},
				table.ErrNotFound},
			"remove what is not": {table.Edit{Key: "b", Remove: true, If: table.IfPresent}, table.ErrNotFound},
			"change another version": {table.Edit{Key: "a", Figures: window(2, 60), If: table.IfVersion, Version: 7},
				table.ErrVersion},
			"remove another version": {table.Edit{Key: "a", Remove: true, If: table.IfVersion, Version: 7},
				table.ErrVersion},
			"change a missing policy": {table.Edit{Key: "b", Figures: window(2, 60), If: table.IfVersion, Version: 1},
				table.ErrNotFound},
		} {
			for _, dryRun := range []bool{true, false} {
				if _, err := s.Apply(soon(t), []table.Edit{set("other", window(9, 9)), c.edit}, "test", 0, dryRun); !errors.Is(
					err, c.want) {
					t.Errorf("%s (dry run %v): %v, want %v", name, dryRun, err, c.want)
				}
			}
		}
		if planned, err := s.Apply(soon(t), []table.Edit{set("other", window(9, 9)), removal("a")}, "test", 0,
			true); err != nil || !planned[0].Changed() || planned[1].After != nil {
			t.Errorf("planned %+v, %v", planned, err)
		}
		st, err := s.State(soon(t))
		check(t, err)
		all, err := s.List(soon(t), "", "", 10)
		check(t, err)
		if st.Generation != 1 || len(all) != 1 || all[0].Capacity != 1 {
			t.Errorf("generation %d, policies %+v; want those from before", st.Generation, all)
		}
	})
}

// TestSnapshotsFollowTheTable compares what a follower has with the table, over changes by chance
// and with processes that fall behind.
func TestSnapshotsFollowTheTable(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s, rng := open(t, url), random.Rand(t, 1)
		fast, slow := new(policies.Set), new(policies.Set)
		followers := map[*policies.Set]*table.Follower{fast: table.NewFollower(s, fast, quiet),
			slow: table.NewFollower(s, slow, quiet)}
		want := map[string]policies.Figures{}
		for round := range random.Times(30, 300) {
			var edits []table.Edit
			for _, n := range rng.Perm(40)[:1+rng.IntN(20)] {
				key := fmt.Sprintf("k%d", n)
				if rng.IntN(3) == 0 {
					edits = append(edits, removal(key))
					delete(want, key)
					continue
				}
				want[key] = policies.Figures{Algorithm: limit.TokenBucket, Capacity: 1 + rng.Int64N(1e6),
					Refill: policies.Amount(1 + rng.Int64N(1e9)), Window: policies.Amount(rng.Int64N(1e12))}
				edits = append(edits, set(key, want[key]))
			}
			apply(t, s, edits...)
			for set, f := range followers {
				if set == slow && round%7 != 6 {
					continue
				}
				check(t, f.Poll(soon(t)))
				got := map[string]policies.Figures{}
				for n := range 40 {
					key := fmt.Sprintf("k%d", n)
					if f, ok := set.Snapshot().Find([]byte(key)); ok {
						got[key] = f
					}
				}
				if !maps.Equal(got, want) || set.Snapshot().Len() != len(want) {
					t.Fatalf("round %d: a follower has %v, want %v", round, got, want)
				}
			}
			if round == 23 { // the next change forgets removed keys that the slow follower does not know yet
				_, err := s.db.Write.ExecContext(soon(t), fmt.Sprint("UPDATE HEADGATE_POLICY_STATE SET GENERATION = ",
					2*keepGone+sweepGone-1))
				check(t, err)
			}
		}
		var old int
		check(t, s.db.Read.QueryRowContext(soon(t), fmt.Sprint(
			"SELECT COUNT(*) FROM HEADGATE_POLICY_GONE WHERE GENERATION <= ", keepGone+sweepGone)).Scan(&old))
		if old != 0 {
			t.Errorf("%d keys that were removed long ago are still stored", old)
		}
	})
}

func TestRowsWrittenByHand(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s, set := open(t, url), new(policies.Set)
		f := table.NewFollower(s, set, quiet)
		check(t, f.Poll(soon(t)))
		nameless := "''"
		if s.db.Dialect.Name == "oracle" {
			nameless = "' '" // there '' is NULL, which no key is
		}
		for _, values := range []string{
			"'good', 'TOKEN_BUCKET', 100, 10, 60", "'exact', 'SLIDING_WINDOW', 3, 0, 1.5",
			"'bad type', 'LEAKY', 100, 10, 60", "'negative', 'FIXED_WINDOW', -1, 0, 60", "'rate', 'TOKEN_BUCKET', 1, -1, 60",
			nameless + ", 'FIXED_WINDOW', 1, 0, 60", "'%zz', 'FIXED_WINDOW', 1, 0, 60", "'a%2fb', 'FIXED_WINDOW', 1, 0, 60",
			"'unused', 'SLIDING_WINDOW_COUNTER', 1, -1, 1",
		} {
			_, err := s.db.Write.ExecContext(soon(t),
				"INSERT INTO HEADGATE_POLICY (POLICY_KEY, TYPE, CAPACITY, REFILL_RATE, WINDOW_SECONDS) VALUES ("+values+")")
			check(t, err)
		}
		_, err := s.db.Write.ExecContext(soon(t), "UPDATE HEADGATE_POLICY_STATE SET GENERATION = GENERATION + 1")
		check(t, err)
		_, err = s.db.Write.ExecContext(soon(t), "UPDATE HEADGATE_POLICY_STATE SET FLOOR_GENERATION = GENERATION")
		check(t, err)
		check(t, f.Poll(soon(t)))
		if set.Snapshot().Len() != 2 || set.Rejected() != 7 {
			t.Errorf("%d policies and %d rejected rows, want 2 and 7", set.Snapshot().Len(), set.Rejected())
		}
		if !has(set, "good", policies.Figures{Algorithm: limit.TokenBucket, Capacity: 100, Refill: 10 * policies.One,
			Window: 60 * policies.One}) ||
			!has(set, "exact", policies.Figures{Algorithm: limit.SlidingLog, Capacity: 3, Window: 1_500_000}) {
			t.Error("rows with the documented columns are not in force")
		}
		// An edit repairs a bad row.
		for _, key := range []string{"negative", "unused"} {
			apply(t, s, table.Edit{Key: key, Figures: window(1, 1)})
			check(t, f.Poll(soon(t)))
			if !has(set, key, window(1, 1)) {
				t.Errorf("%s: a repaired row is not in force", key)
			}
		}
	})
}

func TestManyPoliciesAtOnce(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s := open(t, url)
		n := random.Times(1007, 50_000)
		edits := make([]table.Edit, n)
		for i := range edits {
			edits[i] = set(fmt.Sprintf("user:%06d", i), window(int64(i), 60))
		}
		began := time.Now()
		for i, o := range apply(t, s, edits...) {
			if o.After.ID == 0 || o.After.Key != edits[i].Key {
				t.Fatalf("edit %d made %+v", i, o.After)
			}
		}
		t.Logf("%d policies stored in %v", n, time.Since(began))
		var listed []table.Policy
		for after := ""; ; after = listed[len(listed)-1].Key {
			page, err := s.List(soon(t), after, "user:", 700)
			check(t, err)
			listed = append(listed, page...)
			if len(page) < 700 {
				break
			}
		}
		for i := range listed {
			if listed[i].Key != edits[i].Key {
				t.Fatalf("number %d is %s, want %s", i, listed[i].Key, edits[i].Key)
			}
		}
		if few, err := s.List(soon(t), "", "user:00000", 100); err != nil || len(listed) != n || len(few) != 10 {
			t.Errorf("listed %d of %d, and %d with a prefix, %v", len(listed), n, len(few), err)
		}
	})
}

func TestSecondWatchDoesNotShortenTheFirst(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		s := open(t, url)
		first, err := s.Watch(soon(t), 60e6)
		check(t, err)
		second, err := s.Watch(soon(t), 1e6)
		check(t, err)
		st, err := s.State(soon(t))
		check(t, err)
		if second.WatchFrom != first.WatchFrom || second.WatchUntil != first.WatchUntil ||
			st.WatchUntil != first.WatchUntil || first.WatchUntil-first.WatchFrom != 60e6 {
			t.Errorf("first %+v, second %+v, then %+v", first, second, st)
		}
		if off := time.UnixMicro(st.Now); time.Since(off).Abs() > time.Hour {
			t.Errorf("the clock says %v", off)
		}
	})
}

func TestOtherStoresAreRefused(t *testing.T) {
	if _, err := Open(Config{URL: "redis://host"}); err == nil {
		t.Error("redis is no database of policies")
	}
}

func TestScriptsArePrinted(t *testing.T) {
	for _, scheme := range []string{"sqlite", "postgres", "mysql", "mariadb", "oracle"} {
		if text, err := Print(scheme); err != nil || !strings.Contains(text, "HEADGATE_POLICY_STATE") {
			t.Errorf("%s: %q, %v", scheme, text, err)
		}
	}
}

// TestChangesThatWaitLeaveConnections: while an import holds the lock, changes wait for it, and reads
// do not.
func TestChangesThatWaitLeaveConnections(t *testing.T) {
	s := open(t, testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("policies"))
	_, err := s.Migrate(soon(t))
	check(t, err)
	tx, err := s.db.Write.BeginTx(soon(t), nil)
	check(t, err)
	_, err = s.state(soon(t), tx, s.d.lock)
	check(t, err)
	const changes = 2 * poolMax
	done := make(chan error, changes)
	for i := range changes {
		go func() {
			_, err := s.Apply(soon(t), []table.Edit{set(fmt.Sprint("user:", i), window(1, 60))}, "test", 0, false)
			done <- err
		}()
	}
	until(t, "changes wait", func() bool { return s.db.Write.Stats().InUse > maxChanging })
	for range 50 {
		ctx, cancel := context.WithTimeout(soon(t), 5*time.Second)
		_, err := s.State(ctx)
		cancel()
		if err != nil || len(done) > 0 {
			t.Errorf("%v, and %d changes have ended", err, len(done))
			break
		}
	}
	check(t, tx.Rollback())
	for range changes {
		check(t, <-done)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.turns <- struct{}{}
	s.turns <- struct{}{}
	if _, err := s.Watch(ctx, 1); err == nil {
		t.Error("a change without a turn has begun")
	}
}
