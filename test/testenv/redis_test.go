package testenv

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func mustPing(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	if err := c.Ping(within(t, 5*time.Second)).Err(); err != nil {
		t.Fatalf("ping: %v", err)
	}
}

// once makes a client that does not try again by itself.
func once(t *testing.T, s *RedisServer) *redis.Client {
	t.Helper()
	o := s.Options()
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRedisFlavours(t *testing.T) {
	t.Parallel()
	for flavour, version := range map[string]string{Redis: "", Redis62: "6.2.", Valkey: "9."} {
		t.Run(flavour, func(t *testing.T) {
			t.Parallel()
			s := StartRedis(t, WithFlavour(flavour), WithUnixSocket(), WithArgs("--maxmemory", "100mb"))
			if !strings.HasPrefix(s.Version, version) {
				t.Errorf("the version is %s, want %s", s.Version, version)
			}
			ctx := within(t, 20*time.Second)
			c := once(t, s)
			mustPing(t, c)
			if got := c.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != "104857600" {
				t.Errorf("maxmemory is %q: extra arguments are lost", got)
			}
			if err := c.Do(ctx, "debug", "sleep", "0").Err(); err != nil {
				t.Errorf("DEBUG is not allowed: %v", err)
			}
			sock := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket})
			defer sock.Close()
			mustPing(t, sock)

			if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
				t.Fatal(err)
			}
			s.Pause()
			if _, err := c.Get(within(t, 100*time.Millisecond), "k").Result(); err == nil {
				t.Error("a paused server answers")
			}
			s.Resume()
			if got, err := c.Get(ctx, "k").Result(); err != nil || got != "v" {
				t.Errorf("after the pause k is %q (%v)", got, err)
			}

			addr := s.Addr
			s.Kill()
			if s.Running() {
				t.Error("a killed server runs")
			}
			if conn, err := net.DialTimeout("tcp", s.Addr, time.Second); err == nil {
				conn.Close()
				t.Error("a killed server accepts connections")
			}
			s.Restart()
			if s.Addr != addr {
				t.Errorf("restarted on %s, want %s", s.Addr, addr)
			}
			if err := once(t, s).Get(ctx, "k").Err(); err != redis.Nil {
				t.Errorf("a restarted server still has the key (%v)", err)
			}
			s.Pause()
			s.Stop() // a frozen server can be stopped too
		})
	}
}

func TestRedisUsers(t *testing.T) {
	t.Parallel()
	ctx := within(t, 20*time.Second)

	s := StartRedis(t, WithPassword("pa ss:@/"))
	mustPing(t, s.Client())
	o, err := redis.ParseURL(s.URL())
	if err != nil || o.Password != s.Password {
		t.Fatalf("the URL %s gives the password %q (%v)", s.URL(), o.Password, err)
	}
	o.Password = ""
	bare := redis.NewClient(o)
	defer bare.Close()
	if err := bare.Ping(ctx).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password the server says %v", err)
	}

	s = StartRedis(t, WithACL("user default off", "user app on >secret ~rl:* +@all -@dangerous"))
	o, err = redis.ParseURL(s.URLFor("app", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	app := redis.NewClient(o)
	defer app.Close()
	if err := app.Set(ctx, "rl:a", "1", 0).Err(); err != nil {
		t.Errorf("the user may not write its own keys: %v", err)
	}
	if err := app.Set(ctx, "other", "1", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("another key gives %v", err)
	}
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	s := StartRedis(t, WithTLS(nil), WithPassword("secret"))
	mustPing(t, s.Client())
	if !strings.HasPrefix(s.URL(), "rediss://:secret@127.0.0.1:") {
		t.Errorf("the URL is %s", s.URL())
	}

	certs := TestCerts(t)
	s = StartRedis(t, WithTLS(certs), WithClientCerts())
	if s.Certs != certs {
		t.Error("the server made other certificates than it was given")
	}
	mustPing(t, s.Client())
	o := s.Options()
	o.TLSConfig = &tls.Config{RootCAs: certs.Pool()}
	o.MaxRetries = -1
	bare := redis.NewClient(o)
	defer bare.Close()
	if err := bare.Ping(within(t, 5*time.Second)).Err(); err == nil {
		t.Error("a client without a certificate is let in")
	}
}

func TestRedisThatDoesNotStart(t *testing.T) {
	t.Parallel()
	Require(t, Redis)
	start := time.Now()
	tb := pretend(t, func(tb TB) { StartRedis(tb, WithArgs("--no-such-setting", "1")) })
	mustContain(t, "the failure", tb.fatal, []string{"it ended by itself", "its log ends with", "no-such-setting"})
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v to notice", d)
	}
}

func TestRedisOnATakenPort(t *testing.T) {
	t.Parallel()
	Require(t, Redis)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, _ := net.SplitHostPort(l.Addr().String())
	s := &RedisServer{tb: t, dir: t.TempDir(), binary: Require(t, Redis)}
	attempts := 0
	s.launch(redisReady, func(port int) []string {
		if attempts++; attempts == 1 {
			return []string{"--bind", "127.0.0.1", "--port", taken}
		}
		return []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", ""}
	})
	if attempts != 2 {
		t.Errorf("it took %d attempts, want 2", attempts)
	}
	mustPing(t, s.Client())
}

func TestSocketPathIsShort(t *testing.T) {
	long := "/tmp/" + strings.Repeat("x", 100)
	if err := os.MkdirAll(long, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(long)
	t.Setenv("TMPDIR", long)
	if dir := socketDir(t); len(dir) > 60 {
		t.Errorf("the directory for sockets is %s, which leaves too little of 108 bytes", dir)
	}
}

func TestClusterFailsOverAndKeepsKeys(t *testing.T) {
	t.Parallel()
	start := time.Now()
	c := StartRedisCluster(t, WithPassword("secret"))
	t.Logf("the cluster took %v", time.Since(start).Round(time.Millisecond))
	client := c.Client()
	ctx := within(t, 60*time.Second)
	masters := map[*RedisServer]bool{}
	for _, key := range []string{"a", "b", "c", "{d}1", "{d}2", "e", "f", "g", "h"} {
		if err := client.Set(ctx, key, key, 0).Err(); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
		m := c.MasterFor(key)
		masters[m] = true
		if got, err := m.Client().Get(ctx, key).Result(); err != nil || got != key {
			t.Errorf("MasterFor(%s) is %s, which says %q, %v", key, m.Addr, got, err)
		}
	}
	if len(masters) != clusterMasters {
		t.Errorf("the keys are on %d masters, want %d", len(masters), clusterMasters)
	}

	old := c.MasterFor("a")
	old.Kill()
	start = time.Now()
	next := c.WaitNewMaster("a", old)
	t.Logf("the failover took %v", time.Since(start).Round(time.Millisecond))
	if got, err := next.Client().Get(ctx, "a").Result(); err != nil || got != "a" {
		t.Errorf("the new master has lost the key: %q, %v", got, err)
	}
	old.Restart()
	if m := c.MasterFor("a"); m != next {
		t.Errorf("after its return the old master counts again: %s", m.Addr)
	}
}

func TestOwnsSlot(t *testing.T) {
	t.Parallel()
	const nodes = "aa 127.0.0.1:1@2 master - 0 0 9 connected 0-99\n" +
		"bb 127.0.0.1:3@4 myself,master - 0 0 7 connected 100-199 300 [5->-cc]\n"
	for slot, want := range map[int]bool{5: false, 99: false, 100: true, 199: true, 200: false, 300: true} {
		epoch, owns, err := ownsSlot(nodes, slot)
		if err != nil || owns != want || epoch != 7 {
			t.Errorf("slot %d: %v at epoch %d (%v), want %v at 7", slot, owns, epoch, err, want)
		}
	}
	if _, owns, err := ownsSlot("bb 127.0.0.1:3@4 myself,slave aa 0 0 7 connected\n", 1); owns || err != nil {
		t.Errorf("a replica owns a slot: %v, %v", owns, err)
	}
	if _, _, err := ownsSlot("", 1); err == nil {
		t.Error("an empty answer is no error")
	}
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	start := time.Now()
	s := StartRedisSentinel(t, WithPassword("data"), WithSentinelPassword("watch"))
	t.Logf("the sentinels took %v", time.Since(start).Round(time.Millisecond))
	ctx := within(t, 60*time.Second)
	client := s.Client()
	mustPing(t, client)

	bare := redis.NewSentinelClient(&redis.Options{Addr: s.SentinelAddrs[0]})
	defer bare.Close()
	if err := bare.GetMasterAddrByName(ctx, s.MasterName).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without a password a sentinel says %v", err)
	}

	old := s.Master()
	if old != s.Servers[0] {
		t.Errorf("the master is %s, want the first server", old.Addr)
	}
	old.Kill()
	start = time.Now()
	next := s.WaitNewMaster(old)
	t.Logf("the failover took %v", time.Since(start).Round(time.Millisecond))
	if err := next.Client().Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Errorf("the new master takes no writes: %v", err)
	}
}
