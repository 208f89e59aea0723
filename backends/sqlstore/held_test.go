package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/internal/kit/sqldb"
	"github.com/headgate-rls/headgate/limit"
)

// holdRow locks the row of a group, as a process would that stands still, on a session that no server
// ends within the test. free ends that.
func holdRow(t *testing.T, url, group string) (free func()) {
	t.Helper()
	b := open(t, url)
	db := b.db
	if b.conf.URL != "" { // not Oracle's texts on MariaDB, whose session has no bound
		var err error
		db, err = sqldb.Open(sqldb.Config{URL: b.conf.URL, PoolMax: 1, IdleInTransaction: 5 * time.Minute})
		check(t, err)
		t.Cleanup(func() { check(t, db.Close()) })
	}
	tx, err := db.Begin(soon(t), "hold")
	check(t, err)
	key := counterKey(limit.Key{Group: group, Limit: "l"})
	locked := 0
	lock := b.conf.dialect.expired([][]byte{key}, 1<<62)
	lock.Each = func(scan func(...any) error) error {
		locked++
		return scan(new([]byte))
	}
	_, err = tx.Run(soon(t), "hold", lock)
	check(t, err)
	if locked != 1 {
		t.Fatalf("%d rows were locked, want 1", locked)
	}
	t.Cleanup(tx.Rollback)
	return tx.Rollback
}

// A key that somebody holds fails the requests that need it, and no others of their slice. These are
// answered well before the deadline once it is known that somebody holds rows, and when nobody does any
// more all is as it was.
func TestHeldKeyFailsOnlyItsRequests(t *testing.T) {
	for _, s := range servers()[1:] {
		t.Run(s.name, func(t *testing.T) {
			url := s.create(t)
			migrate(t, url)
			const timeout = 2 * time.Second // a busy machine is slow
			b := openURL(t, url)
			t.Cleanup(func() { check(t, b.Close()) })
			b.conf.Timeout = timeout
			l := upTo(1_000_000)
			groups := []string{"cold1", "cold2", "hot", "warm1", "warm2"}
			var reqs []limit.Request
			for _, g := range groups {
				reqs = append(reqs, ask(l, 1, g))
			}
			reqs = append(reqs, ask(l, 1, "warm3", "hot"))
			for _, v := range try(soon(t), b, reqs...) {
				check(t, v.Err)
			}
			admitted, held := map[int]int64{}, false
			slice := func() (failed []int) {
				t.Helper()
				for i, v := range try(context.Background(), b, reqs...) {
					switch {
					case v.Err == nil && v.Admitted:
						admitted[i]++
					case !errors.Is(v.Err, backends.ErrUnavailable) || !errors.Is(v.Err, backends.ErrNotApplied),
						held && !errors.Is(v.Err, backends.ErrDeclined):
						t.Errorf("request %d: %+v", i, v)
					default:
						failed = append(failed, i)
					}
				}
				return failed
			}
			free := holdRow(t, url, "hot")
			// A server may go on to wait for the lock after the first call has given up, with the rows
			// that it has locked before.
			for until := time.Now().Add(30 * time.Second); fmt.Sprint(slice()) != "[2 5]"; {
				if time.Now().After(until) {
					t.Fatal("requests for other keys fail, too")
				}
			}
			held = true
			for range 3 {
				began := time.Now()
				if failed := fmt.Sprint(slice()); failed != "[2 5]" {
					t.Errorf("requests %s fail, want 2 and 5", failed)
				}
				if took := time.Since(began); took > b.patience() {
					t.Errorf("the slice took %v: it waited again for rows that are known to be held", took)
				}
			}
			held = false
			free()
			for until := time.Now().Add(30 * time.Second); len(slice()) > 0; {
				if time.Now().After(until) {
					t.Fatal("requests fail although nobody holds rows")
				}
			}
			for i, g := range groups {
				want := admitted[i] + 1
				if g == "hot" {
					want += admitted[5] + 1
				}
				if n := used(t, b, l, g); n != want {
					t.Errorf("%s has %d units, want %d", g, n, want)
				}
			}
			for range looksAfter {
				_ = used(t, b, l, "cold1")
			}
			if b.suspects() {
				t.Error("slices look first for ever")
			}
		})
	}
}

// A key that others use all the time is not one that somebody holds: whoever suspects it gets it in turn.
func TestBusyKeyIsNotHeld(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		l := upTo(1_000_000)
		b := open(t, url)
		check(t, try(soon(t), b, ask(l, 1, "hot"))[0].Err)
		ctx, stop := context.WithCancel(soon(t))
		var all sync.WaitGroup
		var others atomic.Int64
		for range 4 {
			other := open(t, url)
			all.Go(func() {
				for ctx.Err() == nil {
					if v := try(ctx, other, ask(l, 1, "hot"))[0]; v.Admitted {
						others.Add(1)
					}
				}
			})
		}
		for others.Load() == 0 && ctx.Err() == nil { // they connect first
			time.Sleep(time.Millisecond)
		}
		for i := range 20 {
			b.looks.Store(1)
			if v := try(soon(t), b, ask(l, 1, "hot"))[0]; v.Err != nil || !v.Admitted {
				t.Errorf("call %d beside four others: %+v", i, v)
			}
		}
		stop()
		all.Wait()
		if others.Load() == 0 {
			t.Error("the key was not in use")
		}
	})
}
