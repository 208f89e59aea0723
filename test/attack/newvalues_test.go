package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-rls/headgate/test/testenv"
)

// TestNewValuesPushOutNobody: a client that thinks of ever new values of a rule, more than memory has room for,
// does not make fresh the counter of one that has used up its limit.
func TestNewValuesPushOutNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(troubleRules), 0o600); err != nil {
		t.Fatal(err)
	}
	hg := testenv.ServeHeadgate(t, program, "--rules", file, "--backend", "memory://?max_keys=1000",
		"--drain-timeout", "1s")
	greedy, other := newCaller(t, hg), newCaller(t, hg)
	for range 4 {
		greedy.ask("few", "greedy")
	}
	*greedy = caller{client: greedy.client}
	values := size(5000, 50_000)
	for i := range values {
		other.ask("few", fmt.Sprint("new-", i))
		if i%20 == 0 {
			greedy.ask("few", "greedy")
		}
	}
	t.Logf("%d new values: client without units left: %d of %d calls admitted", values, greedy.admitted,
		greedy.admitted+greedy.refused)
	if greedy.admitted > 0 || greedy.refused == 0 || other.admitted < values/2 {
		t.Errorf("the client without units left: %+v; the other: %+v", *greedy, *other)
	}
}

// TestNewValuesFillNoStore: under max_keys a client that thinks of ever new values makes no more counters than that, in
// a store without eviction; it passes once for each of them, and takes nothing from clients that are known.
func TestNewValuesFillNoStore(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	bounded := strings.Replace(troubleRules, "key: few,", "key: few, max_keys: 50,", 1)
	if err := os.WriteFile(file, []byte(bounded), 0o600); err != nil {
		t.Fatal(err)
	}
	server := testenv.StartRedis(t, testenv.WithArgs("--maxmemory-policy", "noeviction"))
	hg := testenv.ServeHeadgate(t, program, "--rules", file, "--backend", server.URL(), "--drain-timeout", "1s")
	known, other := newCaller(t, hg), newCaller(t, hg)
	known.ask("few", "known")
	values := size(2000, 20_000)
	for i := range values {
		other.ask("few", fmt.Sprint("new-", i))
	}
	known.ask("few", "known")
	keys, err := server.Client().DBSize(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d new values: %d admitted; the known client: %d admitted; %d keys in Redis", values, other.admitted,
		known.admitted, keys)
	if keys > 60 { // with those that replicas have in common
		t.Errorf("%d keys in Redis, want about 50", keys)
	}
	if other.admitted < 40 || other.admitted > 52 || known.admitted != 2 {
		t.Errorf("the client with new values: %+v; the known one: %+v", *other, *known)
	}
}
