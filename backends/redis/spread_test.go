package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// startRedisProxies starts an Envoy with two listeners whose redis_proxy spreads keys: "hashed" over servers, and
// "cluster" over the nodes of a Cluster, of which one is named.
func startRedisProxies(t *testing.T, node string, servers ...string) (hashed, cluster string) {
	t.Helper()
	const listener = `
  - name: %[1]s
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: %[1]s
          settings: {op_timeout: 5s}
          prefix_routes: {catch_all_route: {cluster: %[1]s}}`
	var endpoints []string
	for _, s := range servers {
		endpoints = append(endpoints, "{endpoint: {address: "+testenv.EnvoyAddress(s)+"}}")
	}
	e := testenv.StartEnvoy(t, "1.40.0", `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:`+fmt.Sprintf(listener, "hashed")+fmt.Sprintf(listener, "cluster")+`
  clusters:
  - name: hashed
    connect_timeout: 1s
    type: STATIC
    lb_policy: MAGLEV
    load_assignment: {cluster_name: hashed, endpoints: [{lb_endpoints: [`+strings.Join(endpoints, ", ")+`]}]}
  - name: cluster
    connect_timeout: 1s
    lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.redis
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.clusters.redis.v3.RedisClusterConfig
        cluster_refresh_rate: 1s
    load_assignment:
      cluster_name: cluster
      endpoints: [{lb_endpoints: [{endpoint: {address: `+testenv.EnvoyAddress(node)+`}}]}]
`)
	return e.ListenerAddr("hashed"), e.ListenerAddr("cluster")
}

// shared are requests with one limit that all share, which a test counts, and others of their own, before it or behind.
type shared struct {
	limit, others *limit.Limit
	shared        limit.Key
	own           func(i, j int) limit.Key
	at            limit.Instant
	each          bool
}

func newShared(t *testing.T, b *Backend, name string, each bool) *shared {
	key := func(s string) limit.Key { return limit.Key{Group: "1:" + name + s, Limit: "1h"} }
	s := &shared{each: each}
	if b.windows {
		// These are in one slot of a Cluster, and on several servers all the same.
		key = func(s string) limit.Key { return textKey(name + "_{same}_" + s + "_") }
		s.at = limit.InstantOf(time.Now())
	}
	overflow := limit.Refuse
	if each {
		overflow = limit.Saturate
	}
	s.limit, s.others = fixed(t, 10, time.Hour, overflow), fixed(t, 10_000, time.Hour, overflow)
	s.shared, s.own = key("shared"), func(i, j int) limit.Key { return key(fmt.Sprint("own", i, "-", j)) }
	return s
}

// request returns request i, with n descriptors.
func (s *shared) request(i, n int) limit.Request {
	req := limit.Request{At: s.at}
	for j := range n {
		op := limit.Op{Key: s.own(i, j), Limit: s.others, Cost: 1, Each: s.each}
		if j == i%n {
			op.Key, op.Limit = s.shared, s.limit
		}
		req.Ops = append(req.Ops, op)
	}
	return req
}

// admitted sends requests of n descriptors from several callers, and returns how many were admitted and how many
// failed.
func (s *shared) admitted(t *testing.T, b *Backend, n int) (admitted, failed int) {
	t.Helper()
	const callers, requests = 4, 20
	var yes, wrong atomic.Int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range requests {
				v := take(t, b, s.request(caller*requests+i, n))[0]
				switch {
				case v.Err != nil:
					wrong.Add(1)
				case v.Admitted:
					yes.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(yes.Load()), int(wrong.Load())
}

// TestProxiesThatSpreadKeys: with layout=envoy no limit is exceeded there, whatever the requests ask for. Other layouts
// need scripts that see all keys of a request: Ping, and so a start, fails with a sentence that names the way out, and
// no request is decided, also if nobody has called Ping.
func TestProxiesThatSpreadKeys(t *testing.T) {
	one, two, nodes := testenv.StartRedis(t), testenv.StartRedis(t), testenv.StartRedisCluster(t)
	hashed, cluster := startRedisProxies(t, nodes.Addrs[0], one.Addr, two.Addr)
	twemproxy := testenv.StartTwemproxy(t, "", one.Addr, two.Addr).Addr
	const apart, slots = "several servers: a proxy that spreads keys", "a Cluster is behind this address"
	for _, c := range []struct{ name, addr, sentence string }{
		{"Envoy, two servers", hashed, apart},
		{"Envoy, a Cluster", cluster, slots},
		{"twemproxy, two servers", twemproxy, apart},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, layout := range []string{"list", "zset"} {
				url := "redis://" + c.addr + "?layout=" + layout
				err := open(t, url).Ping(t.Context())
				if !errors.Is(err, backends.ErrMisconfigured) || !strings.Contains(err.Error(), c.sentence) ||
					!strings.Contains(err.Error(), "layout=envoy") {
					t.Errorf("%s: the error is %v", layout, err)
				}
				b := open(t, url)
				for n := 1; n <= 3; n++ {
					s := newShared(t, b, c.name+layout+fmt.Sprint(n), false)
					if admitted, failed := s.admitted(t, b, n); admitted > 0 || failed != 80 {
						t.Errorf("%s, %d descriptors: %d admitted and %d failed, want all to fail", layout, n, admitted, failed)
					}
				}
			}
			b := open(t, "redis://"+c.addr+"?layout=envoy")
			if err := b.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, each := range []bool{false, true} {
				for n := 1; n <= 3; n++ {
					s := newShared(t, b, fmt.Sprint(c.name, each, n), each)
					if admitted, failed := s.admitted(t, b, n); admitted != 10 || failed > 0 {
						t.Errorf("%d descriptors, each %v: %d admitted of a limit of 10, %d failed", n, each, admitted, failed)
					}
					if err := b.Forget(t.Context(), []limit.Key{s.shared}); err != nil {
						t.Errorf("forget: %v", err)
					}
					if v := take(t, b, s.request(0, n))[0]; v.Err != nil || !v.Admitted {
						t.Errorf("a counter that was reset: %+v", v)
					}
				}
			}
			wantRows(t, b.Registry())
			wantAbilities(t, b)
		})
	}
}

// wantRows checks that a registry has what is put there.
func wantRows(t *testing.T, r backends.Registry) {
	t.Helper()
	var rows []backends.Row
	for i := range 20 {
		rows = append(rows, backends.Row{Key: fmt.Sprint("row", i), Value: fmt.Sprint("value", i)})
	}
	if left, err := r.Put(t.Context(), "replicas", rows, time.Minute); err != nil || left > 0 {
		t.Fatalf("put: %d left, %v", left, err)
	}
	if err := r.Drop(t.Context(), "replicas", []string{"row0", "row1"}); err != nil {
		t.Fatalf("drop: %v", err)
	}
	there, err := r.List(t.Context(), "replicas")
	if err != nil || len(there) != 18 {
		t.Fatalf("list: %d rows, want 18, %v", len(there), err)
	}
	for _, row := range there {
		if row.Value != "value"+strings.TrimPrefix(row.Key, "row") {
			t.Errorf("%+v", row)
		}
	}
	for range 2 {
		if first, err := r.Claim(t.Context(), "secret", "s", time.Minute); err != nil || first != "s" {
			t.Errorf("claim: %q %v", first, err)
		}
	}
}

// wantAbilities checks that a probe finds nothing wrong, and says what is special.
func wantAbilities(t *testing.T, b *Backend) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	all := b.Probe(ctx)
	if len(all) != len(abilities)+1 {
		t.Errorf("%d abilities: %+v", len(all), all)
	}
	for _, a := range all {
		if a.Err != nil || a.Warning != "" || (a.Name == abilities[isOne]) != strings.Contains(a.Note, "several servers") {
			t.Errorf("%+v", a)
		}
	}
}

// TestTwemproxyWithoutHello: twemproxy closes the connection on HELLO, and is logged in to by AUTH. It does the same on
// TIME and INFO. In front of one Redis all layouts work, also through its Unix socket.
func TestTwemproxyWithoutHello(t *testing.T) {
	server := testenv.StartRedis(t, testenv.WithPassword("secret"))
	p := testenv.StartTwemproxy(t, "secret", server.Addr)
	for i, url := range []string{"redis://:secret@" + p.Addr, "redis+unix://:secret@" + p.Socket,
		"redis://:secret@" + p.Addr + "?layout=envoy", "redis+unix://:secret@" + p.Socket + "?layout=zset"} {
		b := open(t, url)
		for n := 1; n <= 3; n++ {
			s := newShared(t, b, fmt.Sprint(i, n), true)
			if admitted, failed := s.admitted(t, b, n); admitted != 10 || failed > 0 {
				t.Errorf("%s, %d descriptors: %d admitted of a limit of 10, %d failed", url, n, admitted, failed)
			}
		}
		before := b.client.PoolStats().TotalConns
		lookAgain(b)
		if after := b.client.PoolStats().TotalConns; after != before {
			t.Errorf("%s: %d connections, and %d after a look at Redis", url, before, after)
		}
		if err := b.Ping(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, c := range []struct{ login, db, want string }{
		{"", "", "the URL names none"},
		{":wrong@", "", "invalid password"},
		{"app:secret@", "", "leave the user out"},
		{":secret@", "/1", "the number after the slash"},
	} {
		err := open(t, "redis://"+c.login+p.Addr+c.db).Ping(t.Context())
		if !errors.Is(err, backends.ErrMisconfigured) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %q: %v", c.login, c.db, err)
		}
	}
}

// TestKeysMayBeApartUntilThatIsKnown: servers that are full refuse the probe. Requests are decided as if keys were
// apart, until a Ping has found out.
func TestKeysMayBeApartUntilThatIsKnown(t *testing.T) {
	one, two := testenv.StartRedis(t), testenv.StartRedis(t)
	b := open(t, "redis://"+testenv.StartTwemproxy(t, "", one.Addr, two.Addr).Addr+"?layout=envoy")
	setMemory := func(most string) {
		for _, s := range []*testenv.RedisServer{one, two} {
			if err := s.Client().ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	setMemory("1")
	s := newShared(t, b, "full", false)
	if v := take(t, b, s.request(0, 2))[0]; !errors.Is(v.Err, backends.ErrDeclined) {
		t.Errorf("full servers: %+v", v)
	}
	setMemory("0")
	if admitted, failed := s.admitted(t, b, 2); admitted != 10 || failed > 0 {
		t.Errorf("%d admitted of a limit of 10, %d failed", admitted, failed)
	}
	if p := b.probed.Load(); p == nil || p.dials >= 0 {
		t.Errorf("the probe has found %+v", p)
	}
	if err := b.Ping(t.Context()); err != nil || b.probed.Load().dials < 0 || !b.apart.Load() {
		t.Errorf("after a ping: %v, %+v", err, b.probed.Load())
	}
}

// A relay passes connections on to an address that may change.
type relay struct {
	net.Listener
	to atomic.Pointer[string]

	mu    sync.Mutex
	conns []net.Conn
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l}
	r.to.Store(&to)
	t.Cleanup(func() {
		_ = l.Close()
		r.turn("")
	})
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			r.pass(client)
		}
	}()
	return r
}

// pass serves a connection. Nothing is behind the empty address: the connection ends at once.
func (r *relay) pass(client net.Conn) {
	server, err := net.Dial("tcp", *r.to.Load())
	if err != nil {
		_ = client.Close()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, client, server)
	for _, c := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			_ = c[0].Close()
		}()
	}
}

// turn ends all connections. The next ones go to another address.
func (r *relay) turn(to string) {
	r.to.Store(&to)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

// TestAnotherServerBehindTheAddress: new connections may lead to something else than the old ones. The next Ping finds
// out, and requests fail from then on, until a server is there that can decide them.
func TestAnotherServerBehindTheAddress(t *testing.T) {
	one, two := testenv.StartRedis(t), testenv.StartRedis(t)
	spreads := testenv.StartTwemproxy(t, "", one.Addr, two.Addr).Addr
	r := startRelay(t, one.Addr)
	native, envoy := open(t, "redis://"+r.Addr().String()), open(t, "redis://"+r.Addr().String()+"?layout=envoy")
	for step, c := range []struct {
		to    string
		wrong string
		apart bool
	}{
		{to: one.Addr}, {to: "", wrong: "ended before any answer"}, {to: one.Addr},
		{to: spreads, wrong: "several servers", apart: true}, {to: two.Addr},
	} {
		r.turn(c.to)
		for _, b := range []*Backend{native, envoy} {
			wrong := c.wrong
			if c.apart && b == envoy {
				wrong = ""
			}
			testenv.Eventually(t, 10*time.Second, fmt.Sprintf("step %d, layout %s", step, b.name), func() string {
				err := b.Ping(t.Context()) // the first one meets the connections that have ended
				if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
					return fmt.Sprintf("the error of Ping is %v, want %q", err, wrong)
				}
				return ""
			})
			s := newShared(t, b, fmt.Sprint("step", step), true)
			admitted, failed := s.admitted(t, b, 2)
			if wrong == "" && (admitted != 10 || failed > 0) || wrong != "" && admitted > 0 {
				t.Errorf("step %d, layout %s: %d admitted of a limit of 10, %d failed", step, b.name, admitted, failed)
			}
			if b == envoy && wrong == "" && b.apart.Load() != c.apart {
				t.Errorf("step %d: keys are apart: %v", step, !c.apart)
			}
			if b.greeting.plain.Load() != (step >= 3) { // from then on HELLO is left out, until the next start
				t.Errorf("step %d, layout %s: HELLO is not known: %v", step, b.name, step < 3)
			}
		}
	}
}

// TestNothingBehindTheAddress: a proxy or a mesh accepts connections for a Redis that is away, and ends them. That is
// said first. It is no question of TLS.
func TestNothingBehindTheAddress(t *testing.T) {
	r := startRelay(t, "")
	for range 2 {
		err := open(t, "redis://"+r.Addr().String()).Ping(t.Context())
		if err == nil {
			t.Fatal("no error")
		}
		text := err.Error()
		ended, tls := strings.Index(text, "ended before any answer"), strings.Index(text, "TLS")
		if ended < 0 || tls < ended || !errors.Is(err, backends.ErrNotApplied) || errors.Is(err, backends.ErrMisconfigured) {
			t.Errorf("the error is %v", err)
		}
	}
}

// TestImitationsOfRedis: some lack struct, which no script of headgate can do without. The script is run with another
// name in its place on a real Redis. What follows of its reply, a fake server shows.
func TestImitationsOfRedis(t *testing.T) {
	real := testenv.StartRedis(t).Client()
	reply, err := real.Eval(t.Context(), strings.ReplaceAll(probeScript, "struct", "nosuch"), []string{"k"}).Slice()
	if err != nil || len(reply) != 2 || reply[0] != int64(0) || reply[1] != "" {
		t.Fatalf("without struct the script returns %v %v", reply, err)
	}
	fake := startFakeSentinel(t, "*2\r\n:0\r\n$0\r\n\r\n")
	b := open(t, "redis://"+fake.Addr().String())
	err = b.Ping(t.Context())
	if !errors.Is(err, backends.ErrMisconfigured) || !strings.Contains(err.Error(), "no struct in Lua") {
		t.Errorf("the error is %v", err)
	}
	if v := takeOne(b, "", 1, 0); !errors.Is(v.Err, backends.ErrMisconfigured) {
		t.Errorf("a request: %+v", v)
	}
	all := b.Probe(t.Context())
	if last := all[len(all)-1]; last.Name != "struct in Lua" || last.Err == nil || len(all) != 4 {
		t.Errorf("the abilities are %+v", all)
	}
}

// TestKeysThatAreGone: a fake server loses keys that a script has written, as no real one does when it is told to. One
// that is missing may have been evicted, so the probe is repeated. If all are missing, nothing is known: somebody may
// have emptied the server. The next ping asks again.
func TestKeysThatAreGone(t *testing.T) {
	for name, c := range map[string]struct {
		missing func(n int64) bool // the n-th key that is deleted
		want    string
	}{
		"none":          {func(int64) bool { return false }, ""},
		"one":           {func(n int64) bool { return n == 5 }, ""},
		"one each time": {func(n int64) bool { return n%probeKeys == 5 }, "several servers"},
		"all":           {func(int64) bool { return true }, ""},
	} {
		var deleted atomic.Int64
		f := startFake(t, &fakeSentinel{answer: func(words string) string {
			switch {
			case strings.HasPrefix(words, "eval"):
				return "*2\r\n:1\r\n$0\r\n\r\n"
			case strings.HasPrefix(words, "unlink "):
				if c.missing(deleted.Add(1)) {
					return ":0\r\n"
				}
				return ":1\r\n"
			}
			return "-ERR unknown command\r\n"
		}})
		b := open(t, "redis://"+f.Addr().String())
		err := b.examine(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, backends.ErrMisconfigured) != (c.want == "several servers") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if known := b.probed.Load().dials >= 0; known == (name == "all") {
			t.Errorf("%s are missing: the next ping does not ask again: %v", name, known)
		}
	}
}

// TestPasswordsOfSentinelsAndServers: Sentinels have passwords of their own, and errors tell whose is missing or wrong.
func TestPasswordsOfSentinelsAndServers(t *testing.T) {
	g := testenv.StartRedisSentinel(t, testenv.WithPassword("ofservers"), testenv.WithSentinelPassword("ofsentinels"))
	hosts := "@" + strings.Join(g.SentinelAddrs, ",") + "/" + g.MasterName
	for _, c := range []struct{ login, params, want string }{
		{":ofservers", "?sentinel_password=ofsentinels", ""},
		{":ofservers", "", "a Sentinel asks for a password of its own"},
		{":ofservers", "?sentinel_password=wrong", "of a Sentinel, not of the servers"},
		{"", "?sentinel_password=ofsentinels", "the server asks for a password"},
		{":wrong", "?sentinel_password=ofsentinels", "of the server, not of a Sentinel"},
	} {
		err := open(t, "redis+sentinel://"+c.login+hosts+c.params).Ping(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %q", c.login, c.params, err, c.want)
		}
	}
}
