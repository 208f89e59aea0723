package sqlstore

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/dbtest"
)

// A slice takes two round trips however long the connection has been idle, with new keys and without,
// admitted or refused.
func TestSliceTakesTwoRoundTrips(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		counter := dbtest.CountTrips(t, hostOf(t, url))
		b := open(t, through(t, url, counter.Addr))
		b.db.Write.SetMaxOpenConns(1)
		warmed(t, b)
		l := upTo(1)
		for i, groups := range [][]string{{"a"}, {"b", "c"}, {"a"}, {"a", "d"}, {"e", "f", "g"}} {
			if i == 4 {
				time.Sleep(1200 * time.Millisecond)
			}
			before := counter.Count()
			check(t, try(soon(t), b, ask(l, 1, groups...))[0].Err)
			if n := counter.Count() - before; n != 2 {
				t.Errorf("slice %d, %v: %d round trips, want 2", i, groups, n)
			}
		}
	})
}
