package dynamodb

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

var soon, check = dbtest.Soon, dbtest.Check

// TestMain sets credentials for DynamoDB Local, so that the tests read no AWS files of the user.
func TestMain(m *testing.M) {
	for _, v := range testenv.DynamoCredentials() {
		name, value, _ := strings.Cut(v, "=")
		_ = os.Setenv(name, value)
	}
	os.Exit(m.Run())
}

var tables atomic.Int64

// newTable is the URL of a table that nobody else has, on the server that tests share.
func newTable(t testing.TB) string {
	t.Helper()
	return newTableAt(t, testenv.SharedDynamoDB(t).URL)
}

// newTableAt is newTable on another server.
func newTableAt(t testing.TB, endpoint string) string {
	t.Helper()
	url := testenv.DynamoTable(endpoint, fmt.Sprintf("limits-%d-%d", os.Getpid(), tables.Add(1)))
	migrate(t, url)
	return url
}

func migrate(t testing.TB, url string) {
	t.Helper()
	b := openURL(t, url)
	defer b.Close() // at once: the suite counts goroutines
	if _, err := b.Migrate(soon(t)); err != nil {
		t.Fatalf("migrate: %v", err)
	}
}

// through is the URL of a table at another endpoint.
func through(t testing.TB, address, endpoint string) string {
	t.Helper()
	c, err := Parse(address)
	check(t, err)
	return testenv.DynamoTable(endpoint, c.Table)
}

// openURL opens a backend that waits longer than the default unless the URL says how long: what a
// busy machine delays is no failure.
func openURL(t testing.TB, url string) *Backend {
	t.Helper()
	c, err := Parse(url)
	check(t, err)
	if !strings.Contains(url, "timeout=") {
		c.Timeout = 20 * time.Second
	}
	c.Now = time.Now
	b, err := Open(c)
	check(t, err)
	return b
}

// open is openURL for a test that does not close the backend itself.
func open(t testing.TB, url string) *Backend {
	t.Helper()
	b := openURL(t, url)
	t.Cleanup(func() { check(t, b.Close()) })
	return b
}

// perHour admits a million per hour.
var perHour = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1_000_000, Window: time.Hour})

// noon is an instant of requests: the middle of an hour.
var noon = limit.InstantOf(time.Now().Truncate(time.Hour).Add(30 * time.Minute))

// one takes units of a limit for a group.
func one(l *limit.Limit, group string, cost int64) limit.Request {
	return limit.Request{At: noon, Ops: []limit.Op{{Key: limit.Key{Group: group}, Limit: l, Cost: cost}}}
}

// take decides a slice, and wants each request decided.
func take(t testing.TB, b *Backend, reqs ...limit.Request) []limit.Verdict {
	t.Helper()
	out := make([]limit.Verdict, len(reqs))
	b.Take(soon(t), reqs, out)
	for i := range out {
		if out[i].Err != nil {
			t.Fatalf("request %d of %d: %v", i, len(reqs), out[i].Err)
		}
	}
	return out
}

// used is how many units of perHour a group has used.
func used(t testing.TB, b *Backend, group string) int64 {
	t.Helper()
	return perHour.Capacity() - take(t, b, one(perHour, group, 0))[0].Outcomes[0].Remaining
}
