package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// lookAgain has b ask the servers as it does every 15 s.
func lookAgain(b *Backend) Vitals {
	for range vitalsEvery {
		b.Sweep(0)
	}
	b.background.Wait()
	return b.Vitals()
}

func TestRedisIsLookedAtAgainAndAgain(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithArgs("--maxmemory", "100mb", "--maxmemory-policy", "noeviction"))
	var text testenv.Log
	b, err := Open(context.Background(), mustParse(t, s.URL()), slog.New(slog.NewTextHandler(&text, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	said := func(what string, times int) {
		t.Helper()
		if n := strings.Count(text.String(), what); n != times {
			t.Errorf("%q is %d times in the log, want %d: %s", what, n, times, text.String())
		}
	}
	takeOne(b, "", 1, 0)
	v := lookAgain(b)
	if v.MemoryMax != 100<<20 || v.MemoryUsed < 100_000 || v.Fullest <= 0 || v.Fullest > 0.5 || v.Evicted != 0 {
		t.Errorf("%+v", v)
	}
	said("level=WARN", 0)

	// Somebody changes the eviction policy while headgate runs, and Redis fills up.
	ctx, client := context.Background(), s.Client()
	if err := client.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	lookAgain(b)
	lookAgain(b)
	said("allkeys-lru", 1)
	for i := range 200 {
		client.Set(ctx, fmt.Sprint("other:", i), strings.Repeat("x", 10_000), 0)
	}
	if err := client.ConfigSet(ctx, "maxmemory", fmt.Sprint(v.MemoryUsed+100_000)).Err(); err != nil {
		t.Fatal(err)
	}
	client.Set(ctx, "one", "more", 0)
	if v = lookAgain(b); v.Evicted < 10 || v.Fullest < 0.5 {
		t.Errorf("after evictions: %+v", v)
	}
	said("Redis evicts keys", 1)

	for i, flush := range []string{"FLUSHALL", "FLUSHDB"} {
		if err := client.Do(ctx, flush).Err(); err != nil {
			t.Fatal(err)
		}
		lookAgain(b)
		v = lookAgain(b)
		said("somebody has emptied Redis", i+1)
	}
	if v.Changes != 2 {
		t.Errorf("after two flushes: %+v", v)
	}

	before := v.Evicted
	s.Kill()
	lookAgain(b)
	s.Restart()
	if v = lookAgain(b); v.Changes != 3 || v.Evicted != before {
		t.Errorf("after a restart: %+v", v)
	}
	said("another Redis answers", 1)
	said("maxmemory-policy allkeys-lru", 1)
	if err := s.Client().ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil { // it becomes a replica
		t.Fatal(err)
	}
	if v = lookAgain(b); v.Changes != 4 {
		t.Errorf("after a change of the role: %+v", v)
	}
	said("it is a replica and takes no writes", 1)
}

// The user of the README example may ask for the figures. If a user may not, the log says so once.
func TestFiguresNeedARight(t *testing.T) {
	s := testenv.StartRedis(t)
	var text testenv.Log
	for _, user := range []struct{ name, rights string }{{"may", "+info"}, {"may-not", "-info"}} {
		if err := s.Client().Do(t.Context(), "ACL", "SETUSER", user.name, "on", ">secret", "~*", "+@all", user.rights).
			Err(); err != nil {
			t.Fatal(err)
		}
		b, err := Open(t.Context(), mustParse(t, s.URLFor(user.name, "secret")), slog.New(slog.NewTextHandler(&text, nil)))
		if err != nil {
			t.Fatal(err)
		}
		lookAgain(b)
		v := lookAgain(b)
		if v.Refused != (user.name == "may-not") || (v.MemoryUsed > 0) == v.Refused {
			t.Errorf("%s: %+v", user.name, v)
		}
		b.Close()
	}
	if n := strings.Count(text.String(), "may not ask INFO"); n != 1 {
		t.Errorf("%d lines: %s", n, text.String())
	}
}

// A node of a Cluster that does not answer at one look is not forgotten: it may come back without its data.
func TestANodeThatComesBackWithoutItsDataIsNoticed(t *testing.T) {
	var log strings.Builder
	s := &servers{log: slog.New(slog.NewTextHandler(&log, nil))}
	a, b := vital{run: "1", role: "master"}, vital{run: "2", role: "master", evicted: 5}
	s.note(map[string]vital{"a:1": a, "b:1": b}, nil, nil)
	s.note(map[string]vital{"a:1": a}, []string{"b:1"}, errors.New("b:1 does not answer"))
	b.run, b.evicted = "3", 2
	s.note(map[string]vital{"a:1": a, "b:1": b}, nil, nil)
	if s.vitals.Changes != 1 || s.vitals.Evicted != 2 || !strings.Contains(log.String(), "another Redis answers") {
		t.Errorf("%d changes, %d keys evicted; the log is %q", s.vitals.Changes, s.vitals.Evicted, log.String())
	}
	s.note(map[string]vital{"a:1": a}, nil, nil)
	if len(s.vitals.known) != 1 {
		t.Errorf("a node that has left is still known: %v", s.vitals.known)
	}
}

// While one node of a Cluster never answers, others come and go, and those that have gone are forgotten.
func TestNodesThatHaveLeftAreForgottenBesideOneThatFails(t *testing.T) {
	s := &servers{log: slog.New(slog.DiscardHandler)}
	m := vital{role: "master"}
	s.note(map[string]vital{"bad:1": m}, nil, nil)
	for i := range 100 {
		s.note(map[string]vital{fmt.Sprint("10.0.0.", i, ":1"): m}, []string{"bad:1", "new:1"}, errors.New("no answer"))
	}
	if _, kept := s.vitals.known["bad:1"]; len(s.vitals.known) != 2 || !kept {
		t.Errorf("%d servers are known, the one that fails: %v", len(s.vitals.known), kept)
	}
}

// A master of a Cluster that does not answer is known by its address.
func TestAMasterThatDoesNotAnswerIsSilent(t *testing.T) {
	c := testenv.StartRedisCluster(t, testenv.WithArgs("--cluster-node-timeout", "120000")) // no replica steps in
	b := open(t, "redis+cluster://"+strings.Join(c.Addrs, ",")+"?timeout=300ms")
	before, silent, err := askVitals(t.Context(), b.client)
	if len(before) != 3 || len(silent) > 0 || err != nil {
		t.Fatalf("%v, silent are %v: %v", before, silent, err)
	}
	away := c.MasterFor("x")
	away.Pause()
	defer away.Resume()
	found, silent, err := askVitals(t.Context(), b.client)
	if len(found) != 2 || len(silent) != 1 || err == nil {
		t.Fatalf("%v, silent are %v: %v", found, silent, err)
	}
	if _, known := before[silent[0]]; !known {
		t.Errorf("silent is %s, known were %v", silent[0], before)
	}
}
