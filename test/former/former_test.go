package former

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A store is one that two builds share, under the name that the table has.
type store struct {
	name   string
	url    func(t *testing.T) string
	rules  string // what it keeps; counting if empty
	checks []string
}

// counting are rules of which each kind has the limit most.
const counting = `domain: d
descriptors:
- {key: fixed window, limits: [{name: l, algorithm: fixed_window, limit: 40, window: 2400h}]}
- {key: sliding window, limits: [{name: l, algorithm: sliding_window, limit: 40, window: 2400h}]}
- {key: sliding log, limits: [{name: l, algorithm: sliding_log, limit: 40, window: 2400h}]}
- {key: token bucket, limits: [{name: l, algorithm: token_bucket, rate: 1/day, burst: 40}]}
- key: several limits
  limits:
  - {name: a, algorithm: fixed_window, limit: 40, window: 2400h}
  - {name: b, algorithm: token_bucket, rate: 1/day, burst: 50}
  - {name: c, algorithm: sliding_log, limit: 60, window: 2400h}
  - {name: d, algorithm: sliding_window, limit: 70, window: 2400h}
- key: each
  charge: each
  limits:
  - {name: a, algorithm: fixed_window, limit: 40, window: 2400h}
  - {name: b, algorithm: sliding_window, limit: 1000, window: 2400h}
- {key: saturate, overflow: saturate, limits: [{name: l, algorithm: fixed_window, limit: 40, window: 2400h}]}
- {key: debt window, overflow: debt, limits: [{name: l, algorithm: fixed_window, limit: 40, window: 2400h}]}
- {key: debt bucket, overflow: debt, limits: [{name: l, algorithm: token_bucket, rate: 1/day, burst: 40}]}
- key: in flight
  lease_ttl: 10m
  concurrency: [{threshold: 10, response: {statusCode: 429}}]
- key: tokens
  reserve: {amount: estimate, default: 10, ttl: 10m}
  limits: [{name: l, algorithm: fixed_window, limit: 1000, window: 2400h}]
- {key: policy, policy: "user:{policy}", limits: [{name: l, algorithm: fixed_window, limit: 40, window: 2400h}]}
`

// plain are rules that layout=envoy keeps.
const plain = `domain: d
descriptors:
- {key: fixed window, rate_limit: {unit: year, requests_per_unit: 40}}
- {key: saturate, overflow: saturate, rate_limit: {unit: year, requests_per_unit: 40}}
- {key: each, charge: each, rate_limit: {unit: year, requests_per_unit: 40}}
`

// most is the limit of all kinds, offered what is asked of each value in each phase, and values how many there are.
const (
	most    = 40
	offered = 15
	values  = 2
)

// logged are rules without debt, as layout=zset keeps no logs that owe, nor needs it reservations.
var logged = strings.NewReplacer("- {key: debt window", "- {key: fixed window 2", "overflow: debt, ", "").
	Replace(counting)

var counters = []string{"counters", "in flight", "tokens"}

var withDatabase = append(slices.Clone(counters), "policies", "slots")

func stores() []store {
	database := func(engine string) func(t *testing.T) string {
		return func(t *testing.T) string {
			return testenv.SharedDatabase(t, engine).CreateDatabase("former")
		}
	}
	redis := func(query string) func(t *testing.T) string {
		return func(t *testing.T) string { return testenv.StartRedis(t).URL() + query }
	}
	return []store{
		{"Redis", redis(""), counting, counters},
		{"Redis layout=zset", redis("?layout=zset"), logged, counters},
		{"Redis layout=envoy", redis("?layout=envoy"), plain, counters[:1]},
		{"PostgreSQL", database(testenv.Postgres), counting, withDatabase},
		{"MariaDB", database(testenv.MariaDB), counting, withDatabase},
		{"SQLite", func(t *testing.T) string {
			testenv.UseSQLite(t)
			return "sqlite:" + filepath.Join(t.TempDir(), "store.db")
		}, counting, withDatabase},
		{"DynamoDB", func(t *testing.T) string {
			return testenv.DynamoTable(testenv.SharedDynamoDB(t).URL, fmt.Sprint("former", rand.Uint32()))
		}, counting, counters},
	}
}

// A pair is both builds on one store. Of a phase some of them run.
type pair struct {
	*testing.T
	builds  [2]*build // in the order in which they come
	running []*build
	checks  []check
}

// A check is something that both builds share. Each part is done once in each phase, and end at the end.
type check interface {
	phase(p *pair, number int)
	end(p *pair)
}

// checks of the stores, by their names.
var checks = map[string]func() check{
	"counters":  func() check { return &counterCheck{passed: map[string]int{}} },
	"in flight": func() check { return new(flightCheck) },
	"tokens":    func() check { return new(tokenCheck) },
	"policies":  func() check { return new(policyCheck) },
	"slots":     func() check { return &slotCheck{slots: map[string]string{}} },
}

// phases say which of the builds run: the first, both, the second alone, and after a rollback the first again.
var phases = [][2]bool{{true, false}, {true, true}, {false, true}, {true, false}}

// TestTwoBuildsOnOneStore: while two builds share a store, and after a rollback, no limit is exceeded, nothing is lost,
// and no answer is one of failure.
func TestTwoBuildsOnOneStore(t *testing.T) {
	former := testenv.FormerHeadgate(t, sources, Commit())
	for _, e := range testenv.DynamoCredentials() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	for _, s := range stores() {
		for _, order := range [][2]string{{"former", "this"}, {"this", "former"}} {
			t.Run(s.name+" "+order[0]+" first", func(t *testing.T) {
				share(t, &s, order, map[string]string{"former": former, "this": program})
			})
		}
	}
}

// patient has a store at a URL wait as long as its callers.
func patient(url string) string {
	if strings.Contains(url, "?") {
		return url + "&timeout=" + callLimit.String()
	}
	return url + "?timeout=" + callLimit.String()
}

// TestTableIsShown: each row of the table has its check on each of its stores, and no check is without a row.
func TestTableIsShown(t *testing.T) {
	rows := map[string]bool{}
	for _, share := range Shares {
		rows[share.Check] = true
		for _, name := range share.Stores {
			i := slices.IndexFunc(stores(), func(s store) bool { return s.name == name })
			if i < 0 || !slices.Contains(stores()[i].checks, share.Check) {
				t.Errorf("%s: nothing shows it on %s", share.What, name)
				continue
			}
			for _, kind := range share.Kinds {
				if !strings.Contains(stores()[i].rules, "key: "+kind) {
					t.Errorf("%s: the rules for %s have no key %s", share.What, name, kind)
				}
			}
		}
	}
	for name := range checks {
		if !rows[name] {
			t.Errorf("the table has no row of the check %s", name)
		}
	}
}

// share has both builds share a store.
func share(t *testing.T, s *store, order [2]string, programs map[string]string) {
	url := s.url(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(s.rules), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--rules", rules, "--backend", patient(url), "--backend-timeout", callLimit.String(),
		"--on-backend-error", "allow"}
	if slices.Contains(s.checks, "slots") {
		flags = append(flags, "--slots", url, "--slots-seed", fmt.Sprintf("%d/PT4S", slotsEach), "--policies", url)
	}
	p := &pair{T: t}
	for i, name := range order {
		p.builds[i] = &build{t: t, name: name, program: programs[name], flags: flags}
	}
	for _, name := range s.checks {
		p.checks = append(p.checks, checks[name]())
	}
	for i, runs := range phases {
		p.running = nil
		for j, b := range p.builds {
			b.runs(runs[j])
			if runs[j] {
				p.running = append(p.running, b)
			}
		}
		for _, c := range p.checks {
			c.phase(p, i)
		}
		if t.Failed() {
			t.Fatalf("in phase %d", i)
		}
	}
	for _, c := range p.checks {
		c.end(p)
	}
	for _, b := range p.running {
		b.runs(false)
	}
}

// any returns one of the builds that run.
func (p *pair) any() *build { return p.running[rand.IntN(len(p.running))] }

// inParallel calls f for each of n numbers, some at a time.
func inParallel(n int, f func(i int)) {
	const workers = 8
	var all sync.WaitGroup
	next := make(chan int)
	for range workers {
		all.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
}

// kinds are the keys of rules that count.
func kinds(rules string) (list []string) {
	for line := range strings.Lines(rules) {
		_, rest, ok := strings.Cut(line, "key: ")
		name, _, _ := strings.Cut(strings.TrimSpace(rest), ",")
		if ok && !slices.Contains([]string{"in flight", "tokens", "policy"}, name) {
			list = append(list, name)
		}
	}
	return list
}

// counterCheck asks for more than each limit allows, in all phases together.
type counterCheck struct {
	mu     sync.Mutex
	passed map[string]int // by kind and value
}

func (c *counterCheck) phase(p *pair, _ int) {
	rules, err := os.ReadFile(p.builds[0].flags[1])
	if err != nil {
		p.Fatal(err)
	}
	var asks [][2]string
	for _, kind := range kinds(string(rules)) {
		for v := range values {
			for range offered {
				asks = append(asks, [2]string{kind, fmt.Sprint("v", v)})
			}
		}
	}
	rand.Shuffle(len(asks), func(i, j int) { asks[i], asks[j] = asks[j], asks[i] })
	inParallel(len(asks), func(i int) {
		a, err := p.any().ask(entry(asks[i][0], asks[i][1]))
		c.mu.Lock()
		defer c.mu.Unlock()
		name := asks[i][0] + "=" + asks[i][1]
		c.passed[name] += 0
		switch {
		case err != nil:
			p.Error(err)
		case a.passed:
			c.passed[name]++
		}
	})
}

func (c *counterCheck) end(p *pair) {
	if len(c.passed) < 3*values {
		p.Fatalf("only %v were asked", c.passed)
	}
	for name, n := range c.passed {
		if n != most {
			p.Errorf("of %s %d passed, want %d of %d", name, n, most, offered*len(phases))
		}
	}
}

// flightCheck has leases that one build grants ended by another.
type flightCheck struct{ held []string }

const flightLimit = 10

func (c *flightCheck) acquire(p *pair, b *build) bool {
	a := b.must(entry("in flight", "x"))
	if !a.passed {
		return false
	}
	if a.token == "" {
		p.Fatalf("%s: a lease without a token", b.name)
	}
	c.held = append(c.held, a.token)
	return true
}

func (c *flightCheck) release(b *build) {
	b.must(entry(ratelimit.OpKey, "release", ratelimit.LeaseEntry, c.held[0]))
	c.held = c.held[1:]
}

// phase fills the limit, and ends the leases of the phase before but for two, which are left to the next one.
func (c *flightCheck) phase(p *pair, number int) {
	for len(c.held) > 2 {
		c.release(p.any())
	}
	for i := 0; len(c.held) < flightLimit; i++ {
		if !c.acquire(p, p.running[i%len(p.running)]) {
			p.Fatalf("phase %d: refused with %d in flight", number, len(c.held))
		}
	}
	for _, b := range p.running {
		if c.acquire(p, b) {
			p.Errorf("phase %d: %s lets one pass beyond %d", number, b.name, flightLimit)
		}
	}
}

func (c *flightCheck) end(p *pair) {
	for len(c.held) > 0 {
		c.release(p.any())
	}
	if a := p.any().must(hits(0, "in flight", "x")); a.remaining != flightLimit {
		p.Errorf("after the end %d are left, want %d", a.remaining, flightLimit)
	}
}

// tokenCheck has reservations that one build makes settled by another.
type tokenCheck struct {
	held  []string
	spent int64
}

const (
	budget   = 1000
	estimate = 60
	cost     = 25
)

// phase settles what the phase before has reserved, and reserves.
func (c *tokenCheck) phase(p *pair, number int) {
	for _, token := range c.held {
		p.any().must(hits(cost, ratelimit.OpKey, "settle", ratelimit.LeaseEntry, token))
		c.spent += cost
	}
	c.held = nil
	for i := range 5 {
		b := p.running[i%len(p.running)]
		a := b.must(entry("tokens", "x"), hits(estimate, ratelimit.OpKey, "estimate"))
		if left := budget - c.spent - estimate*int64(i+1); !a.passed || a.token == "" || a.remaining != left {
			p.Fatalf("phase %d: %s: %+v, want %d left", number, b.name, a, left)
		}
		c.held = append(c.held, a.token)
	}
}

func (c *tokenCheck) end(p *pair) {
	for _, token := range c.held {
		p.any().must(hits(cost, ratelimit.OpKey, "settle", ratelimit.LeaseEntry, token))
		c.spent += cost
	}
	if a := p.any().must(hits(0, "tokens", "x")); a.remaining != budget-c.spent {
		p.Errorf("after the end %d are left, want %d", a.remaining, budget-c.spent)
	}
}
