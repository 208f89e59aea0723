package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/backendtest"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

func mustParse(tb testing.TB, url string) Config {
	tb.Helper()
	c, err := Parse(url)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// openURL waits longer than the default unless the URL says how long: what a busy
// machine delays is no failure.
func openURL(tb testing.TB, url string) *Backend {
	tb.Helper()
	c := mustParse(tb, url)
	c.Now = time.Now
	if !strings.Contains(url, "timeout=") {
		c.DialTimeout, c.Timeout = 10*time.Second, 10*time.Second
	}
	b, err := Open(context.Background(), c, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// open is openURL for a test that does not close the backend itself.
func open(tb testing.TB, url string) *Backend {
	tb.Helper()
	b := openURL(tb, url)
	tb.Cleanup(func() { b.Close() })
	return b
}

const childURL = "HEADGATE_TEST_REDIS_URL"

// TestChild is one of several processes of the conformance suite.
func TestChild(t *testing.T) {
	backendtest.Child(t, func(tb testing.TB) backends.Backend { return openURL(tb, os.Getenv(childURL)) })
}

// suite is the conformance suite for the store at url.
func suite(tb testing.TB, url string, rounds int) backendtest.Suite {
	return backendtest.Suite{
		Caps:   mustParse(tb, url).Caps(),
		Open:   func(tb testing.TB) backends.Backend { return openURL(tb, url) },
		Shared: true, Rounds: rounds,
		Settle: func(tb testing.TB, b backends.Backend) { waitRefunds(tb, b.(*Backend)) },
		Child:  "TestChild", ChildEnv: []string{childURL + "=" + url},
	}
}

// likeFirst is the suite of a store that has the semantics of one that passes the whole suite.
func likeFirst(tb testing.TB, url string, rounds int) backendtest.Suite {
	s := suite(tb, url, rounds)
	s.Short = true
	return s
}

// onServer adds to a suite what needs the server's own account.
func onServer(s backendtest.Suite, server *testenv.RedisServer, probe *redis.Client) backendtest.Suite {
	ctx := context.Background()
	s.Trips = func() int64 { return scriptCalls(ctx, probe) }
	s.Stored = func(tb testing.TB) int {
		// Redis drops only a part of what has expired by itself, so DBSIZE may
		// count such keys for long; a scan leaves them out.
		n, it := 0, probe.Scan(ctx, 0, "", 10_000).Iterator()
		for it.Next(ctx) {
			n++
		}
		if err := it.Err(); err != nil {
			tb.Fatal(err)
		}
		return n
	}
	s.Faults = &backendtest.Faults{
		Freeze: func(testing.TB) { server.Pause() }, Thaw: func(testing.TB) { server.Resume() },
		Kill: func(testing.TB) { server.Kill() }, Restart: func(testing.TB) { server.Restart() },
	}
	return s
}

// scriptCalls returns how many scripts the server was asked to run.
func scriptCalls(ctx context.Context, c *redis.Client) int64 {
	info := parseInfo(c.Info(ctx, "commandstats").Val())
	var n int64
	for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		_, calls, _ := strings.Cut(info[name], "calls=")
		calls, _, _ = strings.Cut(calls, ",")
		i, _ := strconv.ParseInt(calls, 10, 64)
		n += i
	}
	return n
}

// wantLives checks that every key goes away by itself.
func wantLives(t *testing.T, c *redis.Client) {
	t.Helper()
	ctx := context.Background()
	n := 0
	for it := c.Scan(ctx, 0, "", 1000).Iterator(); it.Next(ctx); n++ {
		if ttl := c.PTTL(ctx, it.Val()).Val(); ttl == -1 { // -2: it just went
			t.Errorf("key %q stays for ever", it.Val())
		}
	}
	if n == 0 {
		t.Error("no keys: nothing was checked")
	}
}

func TestListLayoutKeepsTheContract(t *testing.T) {
	s := testenv.StartRedis(t)
	backendtest.Run(t, onServer(suite(t, s.URL(), random.Times(40, 100)), s, s.Client()))
	b := open(t, s.URL())
	takeSome(t, b)
	wantLives(t, s.Client())
}

func TestEnvoyLayoutPassesTheSuite(t *testing.T) {
	s := testenv.StartRedis(t)
	backendtest.Run(t, onServer(suite(t, s.URL()+"?layout=envoy&timeout=10s", random.Times(40, 100)), s, s.Client()))
	wantLives(t, s.Client())
}

func TestZSet(t *testing.T) {
	s := testenv.StartRedis(t)
	backendtest.Run(t, likeFirst(t, s.URL()+"?layout=zset&timeout=10s", 15))
	wantLives(t, s.Client())
}

// TestOldestRedisPassesTheSuite takes from Redis 6.2 the commands that 6.0 does not have, as
// no package of 6.0 can be had.
func TestOldestRedisPassesTheSuite(t *testing.T) {
	var args []string
	for _, c := range []string{
		"ZMSCORE", "ZDIFF", "ZDIFFSTORE", "ZINTER", "ZUNION", "ZRANGESTORE", "ZRANDMEMBER", "SMISMEMBER",
		"GETEX", "GETDEL", "COPY", "LMOVE", "HRANDFIELD",
	} {
		args = append(args, "--rename-command", c, "")
	}
	s := testenv.StartRedis(t, testenv.WithFlavour(testenv.Redis62), testenv.WithArgs(args...))
	backendtest.Run(t, likeFirst(t, s.URL(), random.Times(12, 30)))
	compareMany(t, open(t, s.URL()+"?layout=zset"))
	wantLives(t, s.Client())
}

func TestValkeyPassesTheSuite(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithFlavour(testenv.Valkey))
	backendtest.Run(t, likeFirst(t, s.URL(), random.Times(12, 30)))
	compareMany(t, open(t, s.URL()+"?layout=zset"))
}

// aclUser may do what README.md says a user needs, and no more.
const aclUser = "user app on >s3cret/p@ss?w%%ord ~headgate:* ~rate_limit:* resetchannels -@all " +
	"+hello +auth +select +evalsha +eval +unlink +info +time +scan +get +mget +set +setrange +del +pexpire +incrby " +
	"+lrange +llen +lset +ltrim +rpush +zadd +zcard +zcount +zrange +zrem +zremrangebyrank" +
	" +pttl +zscore +zrangebyscore +zrevrangebyscore +zremrangebyscore"

const aclPassword = "s3cret/p@ss?w%%ord"

func TestTLSAndUser(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithTLS(nil), testenv.WithClientCerts(),
		testenv.WithACL("user default off", aclUser))
	u := "rediss://app:" + url.QueryEscape(aclPassword) + "@" + s.Addr + "/0?server_name=localhost&ca=" +
		url.QueryEscape(s.Certs.CAFile) +
		"&cert=" + url.QueryEscape(s.Certs.Client.CertFile) + "&key=" + url.QueryEscape(s.Certs.Client.KeyFile)
	backendtest.Run(t, likeFirst(t, u, 5))
	compareMany(t, open(t, u+"&layout=zset"))
	for name, bad := range map[string]string{
		"other password": strings.Replace(u, "s3cret", "other", 1),
		"other CA":       strings.Replace(u, "ca="+url.QueryEscape(s.Certs.CAFile), "dial_timeout=1s", 1),
		"no TLS":         "redis://" + s.Addr,
	} {
		out := takeOne(open(t, bad), "", 1, 0)
		if !errors.Is(out.Err, backends.ErrUnavailable) {
			t.Errorf("%s: error %v", name, out.Err)
		}
		if name != "no TLS" && !errors.Is(out.Err, backends.ErrNotApplied) {
			t.Errorf("%s: error %v, want ErrNotApplied", name, out.Err)
		}
		if strings.Contains(out.Err.Error(), "s3cret") {
			t.Errorf("%s: the password is in the error %v", name, out.Err)
		}
	}
}

// Renewed certificates and authorities are read for the next connection.
func TestRenewedCertificates(t *testing.T) {
	s, strangers := testenv.StartRedis(t, testenv.WithTLS(nil), testenv.WithClientCerts()), testenv.TestCerts(t)
	dir := t.TempDir()
	testenv.Install(t, dir, strangers.CAFile, strangers.Client)
	b := open(t, fmt.Sprintf("rediss://%s?server_name=localhost&ca=%[2]s/ca&cert=%[2]s/cert&key=%[2]s/key", s.Addr, dir))
	for _, c := range []struct {
		what, authorities string
		shown             testenv.Pair
		ok                bool
	}{
		{"all of another authority", strangers.CAFile, strangers.Client, false},
		{"a new authority", s.Certs.CAFile, strangers.Client, false},
		{"a new certificate", s.Certs.CAFile, s.Certs.Client, true},
	} {
		testenv.Install(t, dir, c.authorities, c.shown)
		if err := b.Ping(t.Context()); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

func TestPasswordFile(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithPassword("first"))
	file := t.TempDir() + "/password"
	write := func(p string) {
		if err := os.WriteFile(file, []byte(p+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	b := open(t, "redis://"+s.Addr+"?password_file="+url.QueryEscape(file))
	if out := takeOne(b, "", 1, 0); out.Err != nil {
		t.Fatal(out.Err)
	}
	// A rotated secret is read for the next connection.
	c := s.Client()
	c.ConfigSet(context.Background(), "requirepass", "second")
	c.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	write("second")
	var out limit.Verdict
	for range 3 {
		if out = takeOne(b, "", 1, 0); out.Err == nil {
			break
		}
	}
	if out.Err != nil {
		t.Error(out.Err)
	}
	if _, err := Open(context.Background(), mustParse(t, "redis://h?password_file=/none"), nil); err == nil {
		t.Error("a missing password_file is no error")
	}
	if _, err := Open(context.Background(), mustParse(t, "redis://h?password_file=/dev/zero"), nil); err == nil ||
		!strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("a password_file without an end: %v", err)
	}
}

// The pool must not use a connection that the server has closed: nobody could tell whether a call
// on it was recorded.
func TestConnectionClosedWhileIdleIsNotUsed(t *testing.T) {
	ctx := context.Background()
	s := testenv.StartRedis(t)
	b := open(t, "redis://"+s.Addr)
	c := s.Client()
	for range 20 {
		if out := takeOne(b, "", 1, 0); out.Err != nil {
			t.Fatal(out.Err)
		}
		if err := c.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			list, err := c.ClientList(ctx).Result()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(list, "\n") <= 1 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("connections stay open:\n%s", list)
			}
		}
	}
}

func TestUnixSocketReachesTheDatabase(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithUnixSocket())
	backendtest.Run(t, likeFirst(t, "unix://"+s.Socket+"?db=3", 5))
	if n := s.Client().DBSize(context.Background()).Val(); n != 0 {
		t.Errorf("%d keys in database 0, want them in 3", n)
	}
}

func TestSentinelFailoverIsSurvived(t *testing.T) {
	s := testenv.StartRedisSentinel(t, testenv.WithPassword("d@ta"), testenv.WithSentinelPassword("w@tch"))
	u := "redis+sentinel://:" + url.QueryEscape("d@ta") + "@" + strings.Join(s.SentinelAddrs, ",") + "/" + s.MasterName +
		"/0?sentinel_password=" + url.QueryEscape("w@tch")
	backendtest.Run(t, likeFirst(t, u, 5))
	err := open(t, strings.Replace(u, "/"+s.MasterName+"/", "/other/", 1)).Ping(t.Context())
	if !errors.Is(err, backends.ErrMisconfigured) || !strings.Contains(err.Error(), "the Sentinels know no master") {
		t.Errorf("the name of another master: %v", err)
	}
	old := s.Master()
	underLoad(t, open(t, u), func() { old.Kill(); s.WaitNewMaster(old) })
}

func TestClusterKeepsTheContract(t *testing.T) {
	s := testenv.StartRedisCluster(t)
	u := "redis+cluster://" + strings.Join(s.Addrs, ",")
	backendtest.Run(t, likeFirst(t, u, random.Times(25, 60)))
	zset := open(t, u+"?layout=zset")
	compareMany(t, zset)
	checkSlots(t, zset, s.Client())
	t.Run("Split", func(t *testing.T) { splitRequests(t, u) })
	t.Run("Resharding", func(t *testing.T) { resharding(t, s, u) })
	t.Run("URL of one server", func(t *testing.T) { refusesNodes(t, s) })
	t.Run("Split/zset", func(t *testing.T) { splitRequests(t, u+"?layout=zset") })
	b := open(t, u)
	old := s.MasterFor("{0}")
	underLoad(t, b, func() {
		old.Kill()
		s.WaitNewMaster("{0}", old)
	})
}

// refusesNodes: who names one node of a Cluster as if it were all of Redis hears of it, whichever node that is, also
// the one that has the slot of the first key that is asked for. Else most keys would not be limited.
func refusesNodes(t *testing.T, s *testenv.Cluster) {
	for _, layout := range []string{"list", "zset", "envoy"} {
		for _, addr := range s.Addrs[:3] {
			err := open(t, "redis://"+addr+"?layout="+layout).Ping(t.Context())
			if !errors.Is(err, backends.ErrMisconfigured) || !strings.Contains(err.Error(), "use redis+cluster://") {
				t.Errorf("layout %s: %v", layout, err)
			}
		}
	}
}

// splitRequests: a request over three slots that is refused in one gives back
// in the others exactly what it took, however many were admitted meanwhile.
func splitRequests(t *testing.T, u string) {
	b := open(t, u)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	unique := strconv.FormatUint(rand.Uint64(), 36)
	for _, a := range limit.Algorithms() {
		roomy := limit.MustNew(limit.Spec{Algorithm: a, Max: 1000, Window: time.Hour})
		full := limit.MustNew(limit.Spec{Algorithm: a, Max: 1, Window: time.Hour})
		at := limit.InstantOf(time.Now().Add(2 * time.Hour).Truncate(time.Hour))
		key := func(g string) limit.Key { return limit.Key{Group: unique + g, Limit: a.String()} }
		req := limit.Request{At: at, Ops: []limit.Op{
			{Key: key("a"), Limit: roomy, Cost: 3},
			{Key: key("b"), Limit: roomy, Cost: 2, Each: true},
			{Key: key("c"), Limit: full, Cost: 1},
			{Key: key("d"), Limit: roomy, Cost: -1},
		}}
		single := limit.Request{At: at, Ops: []limit.Op{{Key: key("a"), Limit: roomy, Cost: 1}}}
		states := map[limit.Key]limit.State{}
		model := func(req *limit.Request) (v limit.Verdict) {
			list := make([]limit.State, len(req.Ops))
			for i := range list {
				list[i] = states[req.Ops[i].Key]
			}
			limit.Decide(list, req, req.At, &v, nil)
			for i := range list {
				states[req.Ops[i].Key] = list[i]
			}
			return v
		}
		for i := range 6 {
			reqs, out := []limit.Request{req, single}, make([]limit.Verdict, 2)
			reqs[0].At += limit.Instant(i) * 1000
			reqs[1].At += limit.Instant(i) * 1000
			// The single request is decided between the taking and the giving
			// back, so the model only agrees on what is left afterwards.
			b.Take(ctx, reqs, out)
			model(&reqs[0])
			model(&reqs[1])
			waitRefunds(t, b)
			ask := limit.Request{At: reqs[0].At, Ops: []limit.Op{
				{Key: key("a"), Limit: roomy}, {Key: key("b"), Limit: roomy}, {Key: key("c"), Limit: full},
				{Key: key("d"), Limit: roomy}}}
			got := make([]limit.Verdict, 1)
			b.Take(ctx, []limit.Request{ask}, got)
			want := model(&ask)
			if got[0].Err != nil || fmt.Sprint(got[0].Outcomes) != fmt.Sprint(want.Outcomes) {
				t.Fatalf("%v, round %d: %v %v\nwant %v\nafter %+v", a, i, got[0].Err, got[0].Outcomes, want.Outcomes, out)
			}
		}
	}
	if st := b.Stats(); st.Refunds == 0 || st.RefundsLate != 0 || st.RefundsLost != 0 {
		t.Errorf("stats %+v", st)
	}
}

// waitRefunds waits until b has given back what refused requests took.
func waitRefunds(tb testing.TB, b *Backend) {
	tb.Helper()
	testenv.Eventually(tb, 20*time.Second, "give back what refused requests took", func() string {
		if n, size := b.refunds.waiting(); n != 0 || size != 0 {
			return fmt.Sprintf("%d refunds of %d bytes wait", n, size)
		}
		return ""
	})
}

// underLoad runs takes on many keys while break does its work: each call ends
// inside its deadline, and afterwards all keys work again by themselves.
func underLoad(t *testing.T, b *Backend, breakIt func()) {
	t.Helper()
	const deadline, slack = 300 * time.Millisecond, 500 * time.Millisecond
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				out := takeOne(b, strconv.Itoa(i), 1, deadline)
				if d := time.Since(began); d > deadline+slack {
					t.Errorf("a call took %v, its deadline was %v", d, deadline)
				}
				if out.Err != nil && !errors.Is(out.Err, backends.ErrUnavailable) {
					t.Errorf("error %v", out.Err)
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	breakIt()
	for i := range 16 {
		began := time.Now()
		for {
			out := takeOne(b, strconv.Itoa(i), 1, deadline)
			if out.Err == nil {
				break
			}
			if time.Since(began) > 10*time.Second {
				t.Errorf("group %d does not recover: %v", i, out.Err)
				break
			}
		}
	}
	stop()
	all.Wait()
	pinged, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := b.Ping(pinged); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func TestKilledUnderLoad(t *testing.T) {
	s := testenv.StartRedis(t)
	b := open(t, s.URL())
	takeOne(b, "", 1, 0)
	underLoad(t, b, func() {
		time.Sleep(50 * time.Millisecond)
		s.Kill()
		time.Sleep(200 * time.Millisecond)
		s.Restart()
	})
}

var testLimit = limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 1000, Window: time.Minute})

// takeOne takes cost from testLimit. Zero for the deadline is a long one.
func takeOne(b *Backend, group string, cost int64, deadline time.Duration) limit.Verdict {
	if deadline == 0 {
		deadline = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	out := make([]limit.Verdict, 1)
	b.Take(ctx, []limit.Request{
		{Ops: []limit.Op{{Key: limit.Key{Group: group, Limit: "l/sliding_log"}, Limit: testLimit, Cost: cost}}}}, out)
	return out[0]
}

// takeSome uses every algorithm.
func takeSome(t *testing.T, b *Backend) {
	t.Helper()
	var reqs []limit.Request
	for _, a := range limit.Algorithms() {
		l := limit.MustNew(limit.Spec{Algorithm: a, Max: 10, Window: time.Minute})
		reqs = append(reqs,
			limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: "1:g", Limit: a.String()}, Limit: l, Cost: 2}}})
	}
	out := make([]limit.Verdict, len(reqs))
	b.Take(context.Background(), reqs, out)
	for i := range out {
		if out[i].Err != nil {
			t.Fatal(out[i].Err)
		}
	}
}

func TestOpenNeedsNoServer(t *testing.T) {
	for _, u := range []string{
		"redis://127.0.0.1:1", "unix:///none", "redis+cluster://127.0.0.1:1,127.0.0.1:2",
		"redis+sentinel://127.0.0.1:1/mymaster", "rediss://127.0.0.1:1",
	} {
		b := open(t, u)
		began := time.Now()
		out := takeOne(b, "", 1, 0)
		if !errors.Is(out.Err, backends.ErrUnavailable) || !errors.Is(out.Err, backends.ErrNotApplied) {
			t.Errorf("%s: error %v", u, out.Err)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("%s: told after %v", u, d)
		}
		if len(b.Warnings(context.Background())) > 0 {
			t.Errorf("%s: warnings about a server that is away", u)
		}
	}
}

func TestScriptFlushFailsNoCall(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := open(t, s.URL()), s.Client()
	for i := range 3 {
		if out := takeOne(b, "", 1, 0); out.Err != nil || out.Outcomes[0].Remaining != int64(999-i) {
			t.Fatalf("take %d: %+v", i, out)
		}
		if n := b.Stats().NoScript; n != int64(i+1) {
			t.Errorf("%d calls had to send the script, want %d", n, i+1)
		}
		c.ScriptFlush(context.Background())
	}
	// A slice that is split goes through the same.
	reqs, out := make([]limit.Request, 200), make([]limit.Verdict, 200)
	for i := range reqs {
		reqs[i].Ops = []limit.Op{{Key: limit.Key{Group: "f"}, Limit: testLimit, Cost: 1}}
	}
	b.Take(context.Background(), reqs, out)
	for i := range out {
		if out[i].Err != nil || out[i].Outcomes[0].Remaining != int64(999-i) {
			t.Fatalf("request %d: %+v", i, out[i])
		}
	}
}

// TestTakesSendTheDigestOnly: EVALSHA sends the digest, not the script.
func TestTakesSendTheDigestOnly(t *testing.T) {
	s := testenv.StartRedis(t)
	p := testenv.StartProxy(t, s.Addr)
	b := open(t, "redis://"+p.Addr)
	takeOne(b, "", 1, 0)
	b.background.Wait() // the first call is followed by a look at the server
	before := p.Stats()
	takeOne(b, "", 1, 0)
	after := p.Stats()
	if n := after.BytesUp - before.BytesUp; n > 250 {
		t.Errorf("a take sent %d bytes", n)
	}
}

// TestFreezeCostsNoMoreThanTheDeadline: a connection that goes silent costs no more than
// the deadline, even for callers who only wait for a connection.
func TestFreezeCostsNoMoreThanTheDeadline(t *testing.T) {
	s := testenv.StartRedis(t)
	p := testenv.StartProxy(t, s.Addr)
	b := open(t, "redis://"+p.Addr+"?pool_size=2")
	takeOne(b, "", 1, 0)
	p.Freeze()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			began := time.Now()
			const deadline = time.Second // twice as long leaves a busy machine time
			out := takeOne(b, "", 1, deadline)
			if !errors.Is(out.Err, backends.ErrUnavailable) {
				t.Errorf("error %v", out.Err)
			}
			if d := time.Since(began); d > 2*deadline {
				t.Errorf("took %v", d)
			}
		})
	}
	all.Wait()
	p.Resume()
	if out := takeOne(b, "", 1, 5*time.Second); out.Err != nil {
		t.Error(out.Err)
	}
}

// TestForeignDataFailsOnlyItsRequests: what is not headgate's under a key fails the
// requests that need it, and no others, and is not changed.
func TestForeignDataFailsOnlyItsRequests(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	for _, layout := range []string{"list", "zset"} {
		b := open(t, s.URL()+"?layout="+layout)
		for _, a := range limit.Algorithms() {
			k := limit.Key{Group: layout, Limit: a.String()}
			l := limit.MustNew(limit.Spec{Algorithm: a, Max: 5, Window: time.Minute})
			name := b.ownKey(k)
			for what, spoil := range map[string]func(){
				"hash":   func() { c.HSet(ctx, name, "a", "b") },
				"string": func() { c.Set(ctx, name, "7.", 0) },
				"small":  func() { c.Set(ctx, name, "7", 0) },
				"number": func() { c.Set(ctx, name, "9234567890123456789", 0) }, // as long as that of a window
				"binary": func() { c.Set(ctx, name, string([]byte{byte(a)})+strings.Repeat("\xff", 24), 0) },
				"list":   func() { c.RPush(ctx, name, "a", "b") },
				"zset":   func() { c.ZAdd(ctx, name, redis.Z{Score: -5e15, Member: "x"}) },
			} {
				if what == "small" && a == limit.FixedWindow {
					continue // INCRBY leaves such a number: TestWindowsThatAreGoneAndRefused
				}
				c.Del(ctx, name)
				spoil()
				before := c.Dump(ctx, name).Val()
				bad := limit.Request{Ops: []limit.Op{{Key: limit.Key{Group: layout, Limit: "good2"}, Limit: l, Cost: 1},
					{Key: k, Limit: l, Cost: 1}}}
				good := limit.Request{
					Ops: []limit.Op{{Key: limit.Key{Group: layout, Limit: "good" + what + a.String()}, Limit: l, Cost: 1}}}
				out := make([]limit.Verdict, 4)
				b.Take(ctx, []limit.Request{good, bad, {Ops: bad.Ops[1:]}, good}, out)
				for _, i := range []int{1, 2} {
					if !errors.Is(out[i].Err, backends.ErrCorrupt) || !strings.Contains(out[i].Err.Error(), name) {
						t.Errorf("%s, %v, %s: error %v", layout, a, what, out[i].Err)
					}
				}
				if out[0].Err != nil || out[3].Err != nil || out[3].Outcomes[0].Remaining != 3 {
					t.Errorf("%s, %v, %s: neighbours got %+v and %+v", layout, a, what, out[0], out[3])
				}
				if c.Dump(ctx, name).Val() != before {
					t.Errorf("%s, %v, %s: foreign data was changed", layout, a, what)
				}
			}
		}
	}
}

// TestSharedLogKeepsItsForm: programs that share logs with headgate find the keys and
// members they expect.
func TestSharedLogKeepsItsForm(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	b := open(t, s.URL()+"?layout=zset")
	key := limit.Key{Group: limit.RawGroup("user123"), Limit: "api/sliding_log"}
	l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 10, Window: time.Minute})
	now := time.Now().UnixMilli()
	c.ZAdd(ctx, "rate_limit:user123", redis.Z{Score: float64(now - 59_000), Member: "request-uuid-1"},
		redis.Z{Score: float64(now - 61_000), Member: "request-uuid-0"})
	take := func(cost int64) limit.Verdict {
		out := make([]limit.Verdict, 1)
		b.Take(ctx, []limit.Request{{Ops: []limit.Op{{Key: key, Limit: l, Cost: cost}}}}, out)
		return out[0]
	}
	if v := take(3); v.Err != nil || !v.Admitted || v.Outcomes[0].Remaining != 6 {
		t.Fatalf("%+v", v)
	}
	members := c.ZRangeWithScores(ctx, "rate_limit:user123", 0, -1).Val()
	if len(members) != 4 || members[0].Member != "request-uuid-1" {
		t.Fatalf("members %v", members)
	}
	for _, m := range members[1:] {
		if m.Score < float64(now) || m.Score > float64(now+5000) || len(m.Member.(string)) > 14 {
			t.Errorf("member %q with score %v", m.Member, m.Score)
		}
	}
	if ttl := c.PTTL(ctx, "rate_limit:user123").Val(); ttl < time.Minute || ttl > 62*time.Second {
		t.Errorf("the key lives for %v", ttl)
	}
	// Two limits on one shared key in one slice see each other.
	other := key
	other.Limit = "other/sliding_log"
	out := make([]limit.Verdict, 2)
	b.Take(ctx, []limit.Request{
		{Ops: []limit.Op{{Key: key, Limit: l, Cost: 1}, {Key: other, Limit: l, Cost: 1}}},
		{Ops: []limit.Op{{Key: other, Limit: l, Cost: 1}}},
	}, out)
	if out[1].Err != nil || out[1].Outcomes[0].Remaining != 3 {
		t.Errorf("%+v", out)
	}
	if err := b.Forget(ctx, []limit.Key{key}); err != nil || c.Exists(ctx, "rate_limit:user123").Val() != 0 {
		t.Errorf("Forget: %v", err)
	}
}

// TestCalendarByTheServersClock: whatever this process takes the server's clock to show,
// the server's clock says which window it is, and a call that was wrong changes nothing.
func TestCalendarByTheServersClock(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	for _, layout := range []string{"list", "zset"} {
		b := open(t, s.URL()+"?layout="+layout)
		month := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 100, Window: 30 * 24 * time.Hour,
			Calendar: true})
		bucket := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 1, Window: time.Hour, Burst: 100})
		log := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 100, Window: time.Hour})
		ops := []limit.Op{
			{Key: limit.Key{Group: layout, Limit: "month"}, Limit: month, Cost: 1},
			{Key: limit.Key{Group: layout, Limit: "bucket"}, Limit: bucket, Cost: 1},
			{Key: limit.Key{Group: layout, Limit: "log"}, Limit: log, Cost: 1},
		}
		out := make([]limit.Verdict, 2)
		for i, guess := range []limit.Instant{0, 1, limit.InstantOf(time.Now().AddDate(0, -1, -3)),
			limit.InstantOf(time.Now().AddDate(0, 2, 0)), limit.MaxInstant} {
			b.clock.Store(int64(guess))
			for trips := range 2 { // the first call learns the clock
				before := scriptCalls(ctx, c)
				b.Take(ctx, []limit.Request{{Ops: ops[1:]}, {Ops: ops}}, out)
				left := int64(99 - 2*i - trips)
				for j, want := range []int64{left, 101 - 2*(100-left), 101 - 2*(100-left)} {
					if v := &out[1]; v.Err != nil || v.Outcomes[j].Remaining+map[int]int64{0: 0, 1: 1, 2: 1}[j] != want {
						t.Fatalf("%s, guess %v, op %d: %+v, want %d left", layout, guess.Time(), j, v, want)
					}
				}
				if v := &out[1]; v.At.Add(v.Outcomes[0].Reset) != month.WindowEnd(v.At) {
					t.Fatalf("%s, guess %v: %+v", layout, guess.Time(), v)
				}
				// NOSCRIPT costs the very first call another trip.
				if calls := scriptCalls(ctx, c) - before; calls != int64(2-trips) && i+trips > 0 {
					t.Errorf("%s, guess %v: %d calls", layout, guess.Time(), calls)
				}
			}
		}
	}
}

// TestKeysLiveAsLongAsTheirState: a key lives for as long as its state is of use, even if the
// window was shorter when the key was first written.
func TestKeysLiveAsLongAsTheirState(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	for _, layout := range []string{"list", "zset"} {
		b := open(t, s.URL()+"?layout="+layout)
		for _, a := range limit.Algorithms() {
			k := limit.Key{Group: layout, Limit: a.String()}
			longest := time.Duration(0)
			for _, window := range []time.Duration{time.Second, time.Minute, time.Minute, 24 * time.Hour, time.Hour} {
				l := limit.MustNew(limit.Spec{Algorithm: a, Max: 10, Window: window})
				out, began := make([]limit.Verdict, 1), time.Now()
				b.Take(ctx, []limit.Request{{Ops: []limit.Op{{Key: k, Limit: l, Cost: 1}}}}, out)
				if out[0].Err != nil || !out[0].Admitted {
					t.Fatalf("%s, %v: %+v", layout, a, out[0])
				}
				reset := out[0].Outcomes[0].Reset
				longest = max(longest, reset)
				if ttl := c.PTTL(ctx, b.ownKey(k)).Val(); ttl+time.Since(began) < reset || ttl > longest*9/8+3*time.Second {
					t.Errorf("%s, %v, window %v: the key lives for %v, its state for %v", layout, a, window, ttl, reset)
				}
			}
		}
	}
}

// TestALongerWindowThatBeginsWithTheOldOneIsKept: a limit's window becomes longer. The counter of the shorter window
// counts on if both begin at the same instant, and lives until the longer one ends.
func TestALongerWindowThatBeginsWithTheOldOneIsKept(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	for _, query := range []string{"", "?layout=envoy"} {
		b := open(t, s.URL()+query)
		k := limit.Key{Group: "g", Limit: "l"}
		take := func(window time.Duration) (limit.Outcome, limit.Op) {
			op := limit.Op{Key: k, Cost: 1,
				Limit: limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: window})}
			req, out := limit.Request{Ops: []limit.Op{op}}, make([]limit.Verdict, 1)
			if query != "" { // it names windows, and has no clock
				req.At = limit.InstantOf(time.Now())
			}
			b.Take(ctx, []limit.Request{req}, out)
			if out[0].Err != nil || !out[0].Admitted {
				t.Fatalf("%q, %v: %+v", query, window, out[0])
			}
			return out[0].Outcomes[0], op
		}
		start := time.Now().Truncate(4 * time.Second).Add(4 * time.Second)
		take(time.Second) // the script is known
		time.Sleep(time.Until(start.Add(20 * time.Millisecond)))
		for range 2 {
			take(time.Second)
		}
		for i := range int64(3) {
			began := time.Now()
			o, op := take(4 * time.Second)
			if o.Remaining != 10-3-i {
				t.Errorf("%q: %d remaining after %d", query, o.Remaining, 3+i)
			}
			if ttl := c.PTTL(ctx, b.keyOf(&op, limit.InstantOf(start))).Val(); ttl+time.Since(began) < o.Reset {
				t.Errorf("%q: the key lives for %v, its state for %v", query, ttl, o.Reset)
			}
		}
	}
}

// TestOldStateCountsOn: counters that builds before 1.0 wrote count on.
func TestOldStateCountsOn(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	b := open(t, s.URL())
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: 24 * time.Hour})
	k := limit.Key{Group: "g", Limit: "l"}
	out := make([]limit.Verdict, 1)
	take := func(want int64) {
		t.Helper()
		b.Take(ctx, []limit.Request{{Ops: []limit.Op{{Key: k, Limit: l, Cost: 1}}}}, out)
		if out[0].Err != nil || out[0].Outcomes[0].Remaining != want {
			t.Fatalf("%+v, want %d remaining", out[0], want)
		}
	}
	take(9)
	name := b.ownKey(k)
	start := time.Now().Truncate(24 * time.Hour)
	c.Set(ctx, name, string(packed(1, float64(start.UnixMicro()), 1, 0))+"abcd", time.Minute)
	take(8)
	if ttl := c.PTTL(ctx, name).Val(); ttl < out[0].Outcomes[0].Reset {
		t.Errorf("the key lives for %v", ttl)
	}
	take(7)
}

// TestStatesAreSmall: one byte more takes 16 more of Redis. A state that is written over keeps its size.
func TestStatesAreSmall(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, b := context.Background(), open(t, s.URL())
	out := make([]limit.Verdict, 1)
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow} {
		op := limit.Op{Key: limit.Key{Group: "g", Limit: a.KeyLetter()}, Cost: 1,
			Limit: limit.MustNew(limit.Spec{Algorithm: a, Max: 10, Window: time.Hour})}
		for left := int64(9); left > 6; left-- {
			b.Take(ctx, []limit.Request{{Ops: []limit.Op{op}}}, out)
			if out[0].Err != nil || out[0].Outcomes[0].Remaining != left {
				t.Errorf("%v: %+v, want %d remaining", a, out[0], left)
			}
			if n, err := s.Client().StrLen(ctx, b.ownKey(op.Key)).Result(); err != nil || n != 28 {
				t.Errorf("%v: a state of %d bytes, %v", a, n, err)
			}
		}
	}
}

// packed is a state in its older form.
func packed(tag byte, figures ...float64) []byte {
	b := []byte{tag}
	for _, f := range figures {
		b = appendFloat(b, f)
	}
	return b
}

// TestFewerRightsAreEnough: commands that only save time are not needed.
func TestFewerRightsAreEnough(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithACL(aclUser+" -mget -setrange"))
	b := open(t, s.URLFor("app", aclPassword))
	compareMany(t, b)
	takeSome(t, b)
	takeSome(t, b)
}

// TestLargeSliceGoesInParts: what does not fit on the stack of a script goes in parts.
func TestLargeSliceGoesInParts(t *testing.T) {
	s := testenv.StartRedis(t)
	b := open(t, s.URL()+"?max_slice=1024&timeout=20s")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	l := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 10, Window: 240 * time.Hour})
	reqs, out := make([]limit.Request, 1024), make([]limit.Verdict, 1024)
	for i := range reqs {
		for j := range 4 {
			reqs[i].Ops = append(reqs[i].Ops, limit.Op{Key: limit.Key{Group: strconv.Itoa(i), Limit: strconv.Itoa(j)}, Limit: l,
				Cost: 1 + int64(j)})
		}
	}
	for round := range int64(2) {
		calls := b.Stats().Calls
		b.Take(ctx, reqs, out)
		for i := range out {
			for j, got := range out[i].Outcomes {
				if want := 10 - (1+int64(j))*(round+1); out[i].Err != nil || got.Remaining != want {
					t.Fatalf("round %d, request %d, op %d: %v %+v, want %d remaining", round, i, j, out[i].Err, got, want)
				}
			}
		}
		if n := b.Stats().Calls - calls - b.Stats().NoScript*(1-round); n != 1 {
			t.Errorf("%d calls, want one", n)
		}
	}
}

// TestEntriesCostNoMoreThanTheirPrice holds the layouts to their price per entry.
func TestEntriesCostNoMoreThanTheirPrice(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	takeSome(t, open(t, s.URL()))
	for _, a := range limit.Algorithms() {
		name := open(t, s.URL()).ownKey(limit.Key{Group: "1:g", Limit: a.String()})
		t.Logf("%v, 1 take: %d bytes with the key %q", a, c.MemoryUsage(ctx, name).Val(), name)
	}
	for layout, most := range map[string]float64{"list": 16, "zset": 105} {
		b := open(t, s.URL()+"?layout="+layout)
		for _, cost := range []int64{1, 3} {
			if layout == "zset" && cost > 1 {
				continue
			}
			for _, n := range []int{100, 1000, 6000} {
				k := limit.Key{Group: fmt.Sprint(layout, n, cost), Limit: "x"}
				l := limit.MustNew(limit.Spec{Algorithm: limit.SlidingLog, Max: 18_000, Window: time.Hour})
				at := limit.InstantOf(time.Now())
				reqs, out := make([]limit.Request, n), make([]limit.Verdict, n)
				for i := range reqs {
					reqs[i] = limit.Request{At: at + limit.Instant(i)*1000, Ops: []limit.Op{{Key: k, Limit: l, Cost: cost}}}
				}
				b.Take(ctx, reqs, out)
				if last := out[n-1]; last.Err != nil || last.Outcomes[0].Remaining != 18_000-int64(n)*cost {
					t.Fatalf("%+v", last)
				}
				bytes := float64(c.MemoryUsage(ctx, b.ownKey(k), 0).Val()) / float64(n)
				t.Logf("%s, cost %d, %d entries: %.1f bytes each", layout, cost, n, bytes)
				if n == 6000 && bytes > most {
					t.Errorf("%s, cost %d, %d entries: %.1f bytes each, want at most %v", layout, cost, n, bytes, most)
				}
			}
		}
	}
}

func TestPingTellsTheTruth(t *testing.T) {
	s := testenv.StartRedis(t)
	ctx, c := context.Background(), s.Client()
	b := open(t, s.URL())
	ping := func() error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return b.Ping(ctx)
	}
	if err := ping(); err != nil {
		t.Fatal(err)
	}
	for what, setting := range map[string][2]string{
		"replica":           {"replicaof", "127.0.0.1 1"},
		"out of memory":     {"maxmemory", "1"},
		"too few replicas":  {"min-replicas-to-write", "1"},
		"no script allowed": {"", ""},
	} {
		var undo func()
		switch setting[0] {
		case "replicaof":
			c.ReplicaOf(ctx, "127.0.0.1", "1")
			undo = func() { c.ReplicaOf(ctx, "no", "one") }
		case "":
			c.Do(ctx, "ACL", "SETUSER", "default", "-set")
			undo = func() { c.Do(ctx, "ACL", "SETUSER", "default", "+set") }
		default:
			c.ConfigSet(ctx, setting[0], setting[1])
			undo = func() { c.ConfigSet(ctx, setting[0], "0") }
		}
		for name, err := range map[string]error{"Ping": ping(), "Take": takeOne(b, "", 1, 0).Err} {
			if name == "Take" && setting[0] == "" {
				continue // a log needs no SET
			}
			if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, backends.ErrNotApplied) && setting[0] != "" {
				t.Errorf("%s, %s: error %v", what, name, err)
			}
		}
		undo()
		if err := ping(); err != nil {
			t.Errorf("after %s: %v", what, err)
		}
	}
}

func TestWarningsNameTheEvictionPolicy(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithArgs("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"))
	var log bytes.Buffer
	c := mustParse(t, s.URL())
	b, err := Open(context.Background(), c, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if list := b.Warnings(context.Background()); len(list) != 1 || !strings.Contains(list[0], "allkeys-lru") {
		t.Errorf("warnings %q", list)
	}
	takeOne(b, "", 1, 0)
	takeOne(b, "", 1, 0)
	b.background.Wait()
	b.Close()
	if n := strings.Count(log.String(), "allkeys-lru"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	for version, old := range map[string]bool{"6.0.16": false, "6.0.0": false, "5.0": true, "5.9.9": true, "6.2.0": false,
		"7.4.1": false, "10.0": false, "": false, "x": false} {
		if olderThan60(version) != old {
			t.Errorf("version %q", version)
		}
	}
	if list := warningsOf(map[string]string{"redis_version": "5.0.1", "role": "slave", "maxmemory": "0",
		"maxmemory_policy": "allkeys-lru"}); len(list) != 2 {
		t.Errorf("warnings %q", list)
	}
}

func checkSlots(t *testing.T, b *Backend, c *redis.ClusterClient) {
	for _, group := range []string{"", "a", "=a", "1:a", "{", "}", "{}", "a}b%", "={x}", "=a{b"} {
		for _, a := range limit.Algorithms() {
			op := limit.Op{Key: limit.Key{Group: group, Limit: "{l}"},
				Limit: limit.MustNew(limit.Spec{Algorithm: a, Max: 1, Window: time.Second})}
			want, err := c.ClusterKeySlot(context.Background(), b.keyOf(&op, 0)).Result()
			if err != nil || b.slotOf(&op, 0) != int(want) {
				t.Errorf("%v, %q: slot %d, want %d (%v)", a, group, b.slotOf(&op, 0), want, err)
			}
		}
	}
	for _, key := range []string{"", "a", "123456789", "{}x", "{a}x", "x{a}", "{{a}}", "{a", "a}", "x{}{b}",
		"\xff{\x00}"} {
		want, err := c.ClusterKeySlot(context.Background(), key).Result()
		if err != nil || slotOf(key) != int(want) {
			t.Errorf("%q: slot %d, want %d (%v)", key, slotOf(key), want, err)
		}
	}
}

// TestScriptDecidesLikeTheModel on requests made of bytes, in both layouts.
func TestScriptDecidesLikeTheModel(t *testing.T) {
	s := testenv.StartRedis(t)
	for _, layout := range []string{"list", "zset"} {
		b := open(t, s.URL()+"?layout="+layout)
		for i, data := range []string{"0123456789abcdefghijklmnopqrstuvwxyz",
			"\x02\x01\x05\x00\x01\x01\x02\x01\x09\x09\x01\xc8\x03\x03\x02\xfa\x07"} {
			compareAll(t, b, fmt.Sprint("bytes", i), []byte(data))
		}
		compareMany(t, b)
	}
}

// compareMany compares verdicts on random bytes. It has more seeds by make hunt.
func compareMany(t *testing.T, b *Backend) {
	t.Helper()
	unique := strconv.FormatUint(rand.Uint64(), 36)
	r := random.Rand(t, 0)
	for i := range 100 {
		data := make([]byte, 10+r.IntN(150))
		for j := range data {
			data[j] = byte(r.Uint32())
		}
		compareAll(t, b, unique+strconv.Itoa(i), data)
		if t.Failed() {
			t.Logf("round %d", i)
		}
	}
}

// compareAll compares slices of requests for all algorithms, and for those of the straight path.
func compareAll(t *testing.T, b *Backend, unique string, data []byte) {
	t.Helper()
	compare(t, b, unique, data, limit.Algorithms())
	for i, list := range straight {
		compare(t, b, fmt.Sprint(unique, "straight", i), data, list)
	}
}

// straight are algorithms of which slices take the script's straight path.
var straight = [][]limit.Algorithm{{limit.FixedWindow}, {limit.SlidingWindow}, {limit.TokenBucket},
	{limit.FixedWindow, limit.SlidingWindow, limit.TokenBucket}}

// compare makes slices of requests for some algorithms from data and compares
// verdicts: half of the requests meet what the script kept of the others.
func compare(t *testing.T, b *Backend, unique string, data []byte, algorithms []limit.Algorithm) {
	t.Helper()
	next := func() int64 {
		if len(data) == 0 {
			return 0
		}
		n := data[0]
		data = data[1:]
		return int64(n)
	}
	now := limit.InstantOf(time.Now().Add(time.Hour).Truncate(time.Minute))
	keys := int64(2) // of each algorithm
	if len(algorithms) < len(limit.Algorithms()) {
		keys = 32 // so that few requests have two ops under one
	}
	states := map[limit.Key]limit.State{}
	var reqs []limit.Request
	var want []limit.Verdict
	for len(data) > 0 && len(reqs) < 40 {
		now += limit.Instant((next() - 40) * 997_000 / 8 / int64(b.step) * int64(b.step))
		now -= mod(now, b.step)
		req := limit.Request{At: now}
		for range 1 + next()%4 {
			x := next()
			a := algorithms[x%int64(len(algorithms))]
			l := limit.MustNew(limit.Spec{Algorithm: a, Max: 1 + x/4%5, Window: time.Second * time.Duration(1+x/20)})
			req.Ops = append(req.Ops, limit.Op{
				Key:   limit.Key{Group: unique + layouts[b.cfg.Layout].name, Limit: a.String() + strconv.Itoa(int(x/4%keys))},
				Limit: l,
				Cost:  next()%9 - 3, Shadow: x%7 == 0, Each: x%5 == 0,
			})
		}
		list := make([]limit.State, len(req.Ops))
		for i := range list {
			list[i] = states[req.Ops[i].Key]
		}
		var v limit.Verdict
		limit.Decide(list, &req, now, &v, nil)
		for i := len(list) - 1; i >= 0; i-- { // of ops that share a key the first one's counts
			states[req.Ops[i].Key] = list[i]
		}
		reqs, want = append(reqs, req), append(want, v)
	}
	out, half := make([]limit.Verdict, len(reqs)), len(reqs)/2
	b.Take(context.Background(), reqs[:half], out[:half])
	b.Take(context.Background(), reqs[half:], out[half:])
	for i := range out {
		if out[i].Err != nil || out[i].Admitted != want[i].Admitted ||
			fmt.Sprint(out[i].Outcomes) != fmt.Sprint(want[i].Outcomes) {
			t.Fatalf("request %d, %+v:\n     %+v\nwant %+v", i, reqs[i], out[i], want[i])
		}
	}
}
