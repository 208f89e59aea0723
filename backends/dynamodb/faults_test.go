package dynamodb

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/dbtest"
	"github.com/headgate-rls/headgate/test/testenv"
)

// spoiled are a backend behind a proxy, and one beside it.
func spoiled(t *testing.T) (p *proxy, b, beside *Backend) {
	t.Helper()
	server := testenv.SharedDynamoDB(t)
	url := newTable(t)
	p = startProxy(t, server.URL)
	return p, open(t, through(t, url, p.URL)), open(t, url)
}

// several takes units of perHour for several groups at once.
func several(cost int64, groups ...string) limit.Request {
	req := limit.Request{At: noon}
	for _, g := range groups {
		req.Ops = append(req.Ops, limit.Op{Key: limit.Key{Group: g}, Limit: perHour, Cost: cost})
	}
	return req
}

// TestCallsOfASlice: a key costs one write for all of its requests, and one read if they change
// nothing.
func TestCallsOfASlice(t *testing.T) {
	p, b, beside := spoiled(t)
	five := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 5, Window: time.Hour})
	hot := make([]limit.Request, 200)
	cold := make([]limit.Request, 20)
	tenants := make([]limit.Request, 150)
	for i := range hot {
		hot[i] = one(perHour, "hot", 1)
	}
	for i := range cold {
		cold[i] = one(perHour, fmt.Sprint("cold", i), 1)
	}
	for i := range tenants {
		tenants[i] = several(1, "tenant", fmt.Sprint("user", i))
	}
	full := []limit.Request{one(five, "full", 5)}
	take(t, beside, one(perHour, "known to others", 1))
	for _, c := range []struct {
		what  string
		reqs  []limit.Request
		calls string
	}{
		{"a new key", hot[:1], "1 UpdateItem"},
		{"a hot key", hot, "1 UpdateItem"},
		{"new keys", cold, "20 UpdateItem"},
		{"a key that others have", []limit.Request{one(perHour, "known to others", 1)}, "2 UpdateItem"},
		{"the same, now that it is known", []limit.Request{one(perHour, "known to others", 1)}, "1 UpdateItem"},
		{"all of a limit", full, "1 UpdateItem"},
		{"refusals", []limit.Request{one(five, "full", 1), one(five, "full", 1), one(five, "full", 2)}, "1 GetItem"},
		{"a question", []limit.Request{one(perHour, "hot", 0)}, "1 GetItem"},
		{"a request over three keys", []limit.Request{several(1, "a", "b", "c")}, "1 TransactWriteItems"},
		{"a question over three keys", []limit.Request{several(0, "a", "b", "c")}, "1 BatchGetItem"},
		{"that and others", append([]limit.Request{several(1, "a", "b"), one(perHour, "c", 1), one(perHour, "b", 1)}, hot...),
			"2 UpdateItem, 1 TransactWriteItems"},
		{"151 keys that hang together", tenants, "2 TransactWriteItems"},
	} {
		p.count()
		take(t, b, c.reqs...)
		if got := p.counted(); got != c.calls {
			t.Errorf("%s: %s, want %s", c.what, got, c.calls)
		}
	}
	if n := used(t, beside, "hot"); n != 401 {
		t.Errorf("the hot key was used %d times, want 401", n)
	}
	if n := used(t, beside, "tenant"); n != 150 {
		t.Errorf("the tenant was used %d times, want 150", n)
	}
}

// TestLostCallIsRecordedOnce: whatever is lost, and however it is, a request that was answered is
// recorded once.
func TestLostCallIsRecordedOnce(t *testing.T) {
	testenv.Require(t, testenv.DynamoDB) // else all cases are skipped, and nothing is shown
	var settled atomic.Int64
	t.Run("cases", func(t *testing.T) {
		for what, req := range map[string]limit.Request{"one key": several(1, "x"), "two keys": several(1, "x", "y")} {
			for _, drop := range []direction{request, reply} {
				for _, hang := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s, lost %v, silently %v", what, drop, hang), func(t *testing.T) {
						t.Parallel() // a silent loss is waited for
						settled.Add(lostOnce(t, req, fault{drop: drop, hang: hang}))
					})
				}
			}
		}
	})
	if settled.Load() == 0 {
		t.Error("no item has shown what came of a write")
	}
}

// lostOnce has the first call for a request lost, and returns how often an item has shown what came of
// it.
func lostOnce(t *testing.T, req limit.Request, f fault) (settled int64) {
	p, b, beside := spoiled(t)
	b.conf.Timeout = 4 * time.Second // a lost call is noticed after half of it
	p.with(func(_ string, n int) fault {
		if n == 1 {
			return f
		}
		return fault{}
	})
	take(t, b, req)
	calls := p.counted()
	if n := used(t, beside, "x"); n != 1 {
		t.Errorf("recorded %d times, by %s", n, calls)
	}
	p.count()
	take(t, b, req) // what is remembered afterwards is right
	if got := p.counted(); got[:2] != "1 " {
		t.Errorf("afterwards %s", got)
	}
	return b.settled.Load()
}

// TestLostWriteAndOthers: after a lost call somebody else writes before it is repeated.
func TestLostWriteAndOthers(t *testing.T) {
	p, b, beside := spoiled(t)
	for _, c := range []struct {
		name   string
		drop   direction
		others int
		known  bool  // what has come of it
		used   int64 // in all, if the others take 10 each
	}{
		{"not carried out, one other", request, 1, true, 11},
		{"carried out, one other", reply, 1, false, 11},
		{"not carried out, two others", request, 2, false, 20},
	} {
		for _, keys := range [][]string{{c.name}, {c.name + "/1", c.name + "/2"}} {
			if c.drop == reply && len(keys) > 1 {
				continue // DynamoDB itself knows the transaction again
			}
			p.with(func(_ string, n int) fault {
				switch n {
				case 1:
					return fault{drop: c.drop}
				case 2:
					return fault{before: func() {
						for range c.others {
							take(t, beside, one(perHour, keys[0], 10))
						}
					}}
				}
				return fault{}
			})
			out := make([]limit.Verdict, 1)
			b.Take(soon(t), []limit.Request{several(1, keys...)}, out)
			if err := out[0].Err; c.known && err != nil || !c.known && (!errors.Is(err, backends.ErrUnavailable) ||
				errors.Is(err, backends.ErrNotApplied)) {
				t.Errorf("%s: error %v, known %v", c.name, err, c.known)
			}
			p.count()
			if n := used(t, beside, keys[0]); n != c.used {
				t.Errorf("%s, %d keys: %d units are used, want %d", c.name, len(keys), n, c.used)
			}
			take(t, b, one(perHour, keys[0], 1)) // nothing wrong is remembered
			if n := used(t, beside, keys[0]); n != c.used+1 {
				t.Errorf("%s: afterwards %d units are used, want %d", c.name, n, c.used+1)
			}
		}
	}
}

// TestRefusedCalls: what DynamoDB has no capacity for is tried five times, and only there is certainty
// that nothing was recorded.
func TestRefusedCalls(t *testing.T) {
	p, b, beside := spoiled(t)
	for i, c := range []struct {
		name       string
		fault      fault
		keys       int
		calls      string // if it never ends
		notApplied bool
		passes     bool
	}{
		{"throttled", refusal("ProvisionedThroughputExceededException"), 1, "5 UpdateItem", true, true},
		{"throttled on demand", refusal("ThrottlingException"), 1, "5 UpdateItem", true, true},
		{"throttled account", refusal("RequestLimitExceeded"), 1, "5 UpdateItem", true, true},
		{"a transaction has it", refusal("TransactionConflictException"), 1, "5 UpdateItem", true, true},
		{"two transactions", cancelled("None", "TransactionConflict"), 2, "5 TransactWriteItems", true, true},
		{"a throttled transaction", cancelled("ProvisionedThroughputExceeded", "None"), 2,
			"5 TransactWriteItems", true, true},
		{"an item is too large", cancelled("ValidationError", "None"), 2, "1 TransactWriteItems", true, false},
		{"not allowed", refusal("AccessDeniedException"), 1, "1 UpdateItem", true, false},
		{"no table", refusal("ResourceNotFoundException"), 1, "1 UpdateItem", true, false},
		{"a failing server", fault{answer: `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError"}`,
			status: http.StatusInternalServerError}, 1, "5 UpdateItem", false, true},
		{"a failing gateway", fault{answer: "<html>bad gateway</html>", status: http.StatusBadGateway}, 1, "5 UpdateItem",
			false, true},
		{"nonsense", fault{answer: "<html>welcome</html>", status: http.StatusOK + 300}, 1, "5 UpdateItem", false, true},
	} {
		group := fmt.Sprint("group", i)
		req := several(1, group, group+"/2")
		req.Ops = req.Ops[:c.keys]
		p.with(func(string, int) fault { return c.fault })
		out := make([]limit.Verdict, 1)
		b.Take(soon(t), []limit.Request{req}, out)
		if err := out[0].Err; !errors.Is(err, backends.ErrUnavailable) ||
			errors.Is(err, backends.ErrNotApplied) != c.notApplied || p.counted() != c.calls {
			t.Errorf("%s: error %v after %s, want %s", c.name, err, p.counted(), c.calls)
		}
		// What is about one item never counts as an outage, which opens the circuit breaker for all.
		declined := c.notApplied && c.name != "not allowed" && c.name != "no table"
		if err := out[0].Err; errors.Is(err, backends.ErrDeclined) != declined {
			t.Errorf("%s: error %v, want declined %v", c.name, err, declined)
		}
		if !c.passes {
			continue
		}
		p.with(func(_ string, n int) fault {
			if n < defaultTries {
				return c.fault
			}
			return fault{}
		})
		take(t, b, req)
		if n := used(t, beside, group); n != 1 {
			t.Errorf("%s, four times: recorded %d times", c.name, n)
		}
	}
}

// TestRefusedReads: a question has the same patience, and records nothing whatever comes of it.
func TestRefusedReads(t *testing.T) {
	p, b, _ := spoiled(t)
	for name, f := range map[string]fault{"throttled": refusal("ThrottlingException"), "lost": {drop: request}} {
		p.with(func(string, int) fault { return f })
		out := make([]limit.Verdict, 1)
		b.Take(soon(t), []limit.Request{one(perHour, "x", 0)}, out)
		if err := out[0].Err; !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) ||
			p.counted() != "5 GetItem" {
			t.Errorf("%s: error %v after %s", name, err, p.counted())
		}
	}
}

// unprocessed is an answer of DynamoDB that has had no capacity to read the items of some groups, and that
// has nothing under the others.
func unprocessed(table string, groups ...string) fault {
	var keys []string
	for _, g := range groups {
		name := counter(limit.Key{Group: g})
		keys = append(keys, fmt.Sprintf(`{%q:{"B":%q},%q:{"B":%q}}`, attrKey,
			base64.StdEncoding.EncodeToString([]byte(name.key)),
			attrRow, base64.StdEncoding.EncodeToString([]byte(name.row))))
	}
	return fault{status: http.StatusOK,
		answer: fmt.Sprintf(`{"Responses":{%q:[]},"UnprocessedKeys":{%q:{"ConsistentRead":true,"Keys":[%s]}}}`,
			table, table, strings.Join(keys, ","))}
}

// TestUnreadKeys: what DynamoDB has had no capacity to read is asked for again, alone, after a pause and
// not for ever.
func TestUnreadKeys(t *testing.T) {
	p, b, beside := spoiled(t)
	take(t, beside, several(3, "a", "b", "c")) // b knows nothing of them
	p.with(func(_ string, n int) fault {
		if n > 1 {
			return fault{}
		}
		return unprocessed(b.conf.Table, "a", "b")
	})
	out := make([]limit.Verdict, 1)
	b.Take(soon(t), []limit.Request{several(0, "a", "b", "d")}, out)
	for i, want := range []int64{3, 3, 0} {
		if v := &out[0]; v.Err != nil || v.Outcomes[i].Remaining != perHour.Max()-want {
			t.Errorf("op %d: %+v, want %d units taken", i, v, want)
		}
	}
	// The third try knows what the second one has found.
	if got := p.counted(); got != "2 BatchGetItem" || b.throttled.Load() != 1 {
		t.Errorf("%s, of which %d are noted as throttled", got, b.throttled.Load())
	}
	p.with(func(string, int) fault { return unprocessed(b.conf.Table, "a", "b") })
	b.Take(soon(t), []limit.Request{several(0, "a", "b")}, out)
	if err := out[0].Err; !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) ||
		p.counted() != "5 BatchGetItem" {
		t.Errorf("error %v after %s, want 5 BatchGetItem", err, p.counted())
	}
}

// TestOthersAreAlwaysFirst: who finds another state at each try has not recorded anything.
func TestOthersAreAlwaysFirst(t *testing.T) {
	p, b, beside := spoiled(t)
	write := fault{before: func() { take(t, beside, one(perHour, "x", 1)) }}
	p.with(func(string, int) fault { return write })
	out := make([]limit.Verdict, 1)
	b.Take(soon(t), []limit.Request{one(perHour, "x", 100)}, out)
	if err := out[0].Err; !errors.Is(err, backends.ErrNotApplied) || p.counted() != "5 UpdateItem" {
		t.Errorf("error %v after %s", err, p.counted())
	}
	if n := used(t, beside, "x"); n != defaultTries {
		t.Errorf("%d units are used, want those of the others: %d", n, defaultTries)
	}
}

// TestDeadlineIsKept: a silent DynamoDB costs the time-out, or the caller's deadline, and no more.
func TestDeadlineIsKept(t *testing.T) {
	p, b, _ := spoiled(t)
	p.with(func(string, int) fault { return fault{drop: request, hang: true} })
	b.conf.Timeout = 300 * time.Millisecond
	for _, caller := range []time.Duration{100 * time.Millisecond, time.Hour} {
		began, out := time.Now(), make([]limit.Verdict, 2)
		ctx, cancel := context.WithTimeout(context.Background(), caller)
		b.Take(ctx, []limit.Request{one(perHour, "x", 1), one(perHour, "y", 1)}, out)
		took := time.Since(began)
		cancel()
		if want := min(caller, b.conf.Timeout); took < want || took > want+2*time.Second {
			t.Errorf("a call of %v took %v", want, took)
		}
		for i := range out {
			if err := out[i].Err; !errors.Is(err, backends.ErrUnavailable) || errors.Is(err, backends.ErrNotApplied) {
				t.Errorf("request %d: error %v; nobody knows what became of it", i, err)
			}
		}
	}
}

// TestNobodyThere: a server that is not there is asked five times, also by who tries more often when he
// races with others.
func TestNobodyThere(t *testing.T) {
	nobody := httptest.NewServer(nil)
	nobody.Close()
	for _, c := range []struct {
		tries string
		calls int64
	}{{"3", 3}, {"20", maxUnsent}} {
		b := open(t, testenv.DynamoTable(nobody.URL, "limits")+"&tries="+c.tries)
		out := make([]limit.Verdict, 1)
		b.Take(soon(t), []limit.Request{one(perHour, "x", 1)}, out)
		if err := out[0].Err; !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) {
			t.Errorf("error %v", err)
		}
		dbtest.WantError(t, b.Ping(soon(t)), "connection refused")
		if n := b.calls.Load(); n != 2*c.calls {
			t.Errorf("tries=%s: %d calls for a request and a ping, want %d", c.tries, n, 2*c.calls)
		}
	}
}
