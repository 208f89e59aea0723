package sqlstore

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	policystore "github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/test/testenv"
)

// The views show what rules have: tokens and when they were counted, units of windows, the times of
// requests.
func TestViewsShowWhatRulesHave(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, onMariaDB) {
			return // MariaDB does not know the words of Oracle's views
		}
		b := open(t, url)
		at := limit.InstantOf(time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)) + 123_456
		group := string(limit.AppendPart(limit.AppendPart(nil, "shop"), "café"))
		send := func(name string, s limit.Spec, at limit.Instant, cost int64) {
			t.Helper()
			req := limit.Request{At: at,
				Ops: []limit.Op{{Key: limit.Key{Group: group, Limit: name}, Limit: limit.MustNew(s), Cost: cost}}}
			if v := try(soon(t), b, req)[0]; v.Err != nil || !v.Admitted {
				t.Fatalf("%+v", v)
			}
		}
		send("tbucket", limit.Spec{Algorithm: limit.TokenBucket, Max: 7, Window: time.Minute, Burst: 20}, at, 4)
		send("ffixed", limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: time.Hour}, at, 3)
		send("wsliding", limit.Spec{Algorithm: limit.SlidingWindow, Max: 10, Window: time.Hour}, at, 2)
		send("wsliding", limit.Spec{Algorithm: limit.SlidingWindow, Max: 10, Window: time.Hour}, at.Add(time.Hour), 1)
		log := limit.Spec{Algorithm: limit.SlidingLog, Max: 1000, Window: 24 * time.Hour}
		var requests []string
		for i := range 40 {
			when, n := at.Add(time.Duration(i*i)*1_234_567*time.Microsecond), int64(1+i%3*9)
			send("llog", log, when, n)
			if i%13 == 0 {
				requests = append(requests, fmt.Sprintf("llog %s %d", when.Time().Format("2006-01-02 15:04:05.000000"), n))
			}
		}
		const stamp, hour = "2030-05-06 07:08:09.123456", "2030-05-06 07:00:00.000000"
		b.wantView(t, "LIMIT_TX, TOKENS, LAST_REFILL_TS FROM HEADGATE_TOKEN_BUCKETS", "tbucket 16 "+stamp)
		b.wantView(t, "LIMIT_TX, UNITS, UNITS_BEFORE, WINDOW_STRT_TS FROM HEADGATE_WINDOWS ORDER BY LIMIT_TX",
			"ffixed 3 0 "+hour, "wsliding 1 2 2030-05-06 08:00:00.000000")
		b.wantView(t, "ALGORITHM_NM FROM HEADGATE_COUNTERS ORDER BY ALGORITHM_NM", "fixed_window", "sliding_log",
			"sliding_window", "token_bucket")
		got := b.view(t, "LIMIT_TX, REQUEST_TS, UNITS FROM HEADGATE_REQUESTS ORDER BY REQUEST_TS")
		if all := strings.Join(got, "\n"); len(got) != 40 || !strings.HasPrefix(all, requests[0]) ||
			!strings.Contains(all, requests[2]) || !strings.Contains(all, requests[3]) {
			t.Errorf("the view of requests has %d rows:\n%s\nwant %q among them", len(got), all, requests)
		}
		for _, g := range b.view(t, "GROUP_TX FROM HEADGATE_TOKEN_BUCKETS") {
			if g != group && g != strings.ReplaceAll(group, "é", `\303\251`) {
				t.Errorf("the group is %q, want %q", g, group)
			}
		}
	})
}

// TestViewsByOtherNames: the views that README.md offers show buckets, admissions and policies.
func TestViewsByOtherNames(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	check(t, err)
	_, statements, _ := strings.Cut(string(readme), "```sql\n")
	statements, _, _ = strings.Cut(statements, "```")
	eachMigrated(t, func(t *testing.T, url string) {
		if !strings.HasPrefix(url, "mysql:") {
			return
		}
		b := open(t, url)
		store, err := policystore.Open(policystore.Config{URL: url})
		check(t, err)
		defer store.Close()
		_, err = store.Migrate(soon(t))
		check(t, err)
		made := 0
		for statement := range strings.SplitSeq(strings.TrimSpace(statements), ";") {
			if statement != "" {
				_, err := b.db.Write.ExecContext(soon(t), statement)
				check(t, err)
				made++
			}
		}
		_, err = b.db.Write.ExecContext(soon(t), "INSERT INTO HEADGATE_POLICY (POLICY_KEY, TYPE, CAPACITY, REFILL_RATE) "+
			"VALUES ('user-123', 'TOKEN_BUCKET', 100, 2.5)")
		check(t, err)
		at := limit.InstantOf(time.UnixMilli(1_900_000_000_123))
		group := string(limit.AppendPart(limit.AppendPart(nil, "shop"), "alice"))
		bucket := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 7, Window: time.Minute, Burst: 20})
		log := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 1000, Window: 24 * time.Hour})
		for _, op := range []limit.Op{{Key: limit.Key{Group: group, Limit: "t"}, Limit: bucket, Cost: 4},
			{Key: limit.Key{Group: group, Limit: "l"}, Limit: log, Cost: 3}} {
			if v := try(soon(t), b, limit.Request{At: at, Ops: []limit.Op{op}})[0]; v.Err != nil || !v.Admitted {
				t.Fatalf("%+v", v)
			}
		}
		if made != 3 {
			t.Errorf("README.md has %d views, not 3", made)
		}
		b.wantView(t, "key_id, tokens, last_refill FROM throttlex_usage", group+" 16 1900000000123")
		b.wantView(t, "key_id, request_time, units FROM throttlex_sw_log", group+" 1900000000123 3")
		b.wantView(t, "policy_key, type, capacity, refill_rate, window_seconds FROM throttlex_policy",
			"user-123 TOKEN_BUCKET 100 2.500000 0.000000")
	})
}

// The view of requests in flight counts leases, also when there are more than a byte holds.
func TestViewShowsRequestsInFlight(t *testing.T) {
	eachMigrated(t, func(t *testing.T, url string) {
		if strings.HasPrefix(url, onMariaDB) {
			return // see README.md
		}
		b := open(t, url)
		at := limit.InstantOf(time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC))
		hold := func(group, holder string, cost int64) {
			t.Helper()
			l := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: 200, Window: time.Minute})
			req := limit.Request{At: at,
				Ops: []limit.Op{{Key: limit.Key{Group: group, Limit: "cinflight"}, Limit: l, Cost: cost, Holder: holder}}}
			if v := try(soon(t), b, req)[0]; v.Err != nil || !v.Admitted {
				t.Fatalf("%+v", v)
			}
		}
		for i := range 150 {
			hold("many", fmt.Sprintf("holder-%d", i), 1)
		}
		hold("few", "one", 1)
		hold("few", "two", 1)
		hold("few", "one", -1)
		const ends = "2030-05-06 07:09:09.000000"
		b.wantView(t, "LIMIT_TX, REQUESTS FROM HEADGATE_IN_FLIGHT ORDER BY REQUESTS",
			"cinflight 1", "cinflight 150")
		if got := b.view(t, "ENDS_TS FROM HEADGATE_IN_FLIGHT WHERE REQUESTS = 150"); len(got) != 1 || got[0] < ends {
			t.Errorf("they end at %q, want %s or later", got, ends)
		}
	})
}

func (b *Backend) wantView(t *testing.T, query string, want ...string) {
	t.Helper()
	if got := b.view(t, query); strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%s: %q, want %q", query, got, want)
	}
}

// view returns the rows of a query as text.
func (b *Backend) view(t *testing.T, query string) (lines []string) {
	t.Helper()
	rows, err := b.db.Read.QueryContext(soon(t), "SELECT "+query)
	check(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	check(t, err)
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		check(t, rows.Scan(to...))
		var words []string
		for _, v := range values {
			switch v := v.(type) {
			case time.Time:
				words = append(words, v.UTC().Format("2006-01-02 15:04:05.000000"))
			case []byte:
				words = append(words, string(v))
			default:
				words = append(words, fmt.Sprint(v))
			}
		}
		lines = append(lines, strings.Join(words, " "))
	}
	check(t, rows.Err())
	return lines
}

// What headgate migrate --print prints makes the schema by the server's own client, and nothing is left
// to be done.
func TestPrintedSchemaLeavesNothingToDo(t *testing.T) {
	for _, engine := range []string{testenv.Postgres, testenv.MariaDB, testenv.MySQL} {
		t.Run(engine, func(t *testing.T) {
			server := testenv.SharedDatabase(t, engine)
			address := server.CreateDatabase("limits")
			u, err := url.Parse(address)
			check(t, err)
			scheme := map[string]string{testenv.MariaDB: "mariadb"}[engine]
			if scheme == "" {
				scheme = u.Scheme
			}
			text, err := Print(scheme)
			check(t, err)
			server.ExecOn(strings.TrimPrefix(u.Path, "/"), text)
			b := open(t, address)
			if applied, err := b.Migrate(soon(t)); err != nil || len(applied) > 0 {
				t.Errorf("applied %v, %v", applied, err)
			}
			take(t, b, 0, "k", 1)
		})
	}
}

// A user with rights on data only decides and answers pings.
func TestRightsOnDataOnly(t *testing.T) {
	server := testenv.SharedDatabase(t, testenv.Postgres)
	address := server.CreateDatabase("limits")
	migrate(t, address)
	u, err := url.Parse(address)
	check(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	server.ExecOn(name, "CREATE ROLE "+name+" LOGIN PASSWORD 'p'; GRANT SELECT, INSERT, UPDATE, "+
		"DELETE ON HEADGATE_STATE, HEADGATE_LOG TO "+name+
		"; GRANT SELECT ON HEADGATE_SCHEMA_HISTORY TO "+name)
	t.Cleanup(func() { server.ExecOn(name, "DROP OWNED BY "+name+"; DROP ROLE "+name) })
	u.User = url.UserPassword(name, "p")
	b := open(t, u.String())
	take(t, b, 0, "k", 1)
	check(t, b.Ping(soon(t)))
	check(t, b.Forget(soon(t), []limit.Key{{Group: "k"}}))
	if applied, err := b.Migrate(soon(t)); err != nil || len(applied) > 0 {
		t.Errorf("applied %v, %v", applied, err)
	}
}

// Without its tables a store says what to do, and that nothing was applied.
func TestMissingSchemaSaysWhatToDo(t *testing.T) {
	each(t, func(t *testing.T, address string) {
		b := open(t, address)
		for _, err := range []error{try(soon(t), b, ask(upTo(1), 1, "k"))[0].Err, b.Ping(soon(t))} {
			if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) ||
				!strings.Contains(err.Error(), "headgate migrate --backend") {
				t.Errorf("got %v", err)
			}
		}
	})
}
