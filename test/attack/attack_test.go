package attack

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/headgate-rls/headgate/test/testenv"
)

// An attack is a row of the table.
type attack struct {
	name  string
	redis bool     // the counters are in a Redis, not in memory
	flags []string // further flags of headgate serve
	// program is what runs headgate; empty: program
	program string
	// run attacks. What it opens through target is closed after the memory has
	// been measured.
	run  func(*target)
	want bounds
}

// bounds are what headgate must keep to during an attack. The sizes are those
// of the short form; the full form may take fullFactor times as much.
type bounds struct {
	peakMiB  int     // resident at most, of which about 40 are the program
	heldMiB  int     // live heap when the attack has been over for a while, its connections still open
	cpu      float64 // seconds
	lost     float64 // the share of the bystander's calls that may fail or be answered by policy
	uncounts int     // calls of the attacker that may be admitted without being counted
}

// rules have a limit that never refuses, limits on reported costs, one that grants leases,
// and resources.
const rules = `
domain: attack
descriptors:
- {key: free, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
- key: usage
  overflow: debt
  max_debt: 1000000
  limits:
  - {name: bucket, algorithm: token_bucket, rate: 1000/s, burst: 1000}
  - {name: log, algorithm: sliding_log, limit: 1000, window: 1h}
  - {name: window, algorithm: sliding_window, limit: 1000, window: 1h}
- {key: slow, concurrency: [{threshold: 1000000, response: {statusCode: 503}}]}
resources:
- {path: /api/pay, rate_limit: {unit: hour, requests_per_unit: 1000000000}}
- {path: '~^/v[0-9]+/', rate_limit: {unit: hour, requests_per_unit: 1000000000}}
`

// A target is a headgate under attack.
type target struct {
	t  *testing.T
	hg *testenv.Headgate

	sent     atomic.Int64 // bytes
	uncounts atomic.Int64 // calls of the attacker admitted by failure policy
	notes    []string
	conns    []*wire
}

// size returns the size of an attack in the form that runs.
func size[T any](short, whole T) T {
	if *full {
		return whole
	}
	return short
}

// note adds to the table what an attack found.
func (g *target) note(format string, args ...any) {
	g.notes = append(g.notes, fmt.Sprintf(format, args...))
}

// A result is what became of an attack.
type result struct {
	name      string
	sent      int64
	peakMiB   int
	heldMiB   int
	counted   int // MiB at most that headgate counts as memory of connections
	cpu       float64
	uncounts  int
	bystander sightings
	during    int // calls of the bystander during the attack
	late      int // of these, those that failed, were answered by policy, or took longer than Envoy waits
	notes     []string
}

func TestAttacksStayWithinTheirBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	if runtime.GOOS != "linux" {
		t.Skip("measures processes as Linux tells them")
	}
	var results []result
	for _, a := range attacks {
		t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) {
			r := a.measure(t)
			t.Log("\n" + table([]result{r}))
			if a.want != (bounds{}) {
				a.want.check(t, &r)
			}
			results = append(results, r)
		})
	}
	t.Log("what the attacks did to " + program + ":\n" + table(results))
}

// measure runs an attack against a headgate of its own.
func (a *attack) measure(t *testing.T) result {
	backend := "memory://"
	if a.redis {
		backend = testenv.StartRedis(t).URL()
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := append([]string{"--rules", file, "--backend", backend, "--drain-timeout", "1s"}, a.flags...)
	g := &target{t: t, hg: testenv.ServeHeadgate(t, cmp.Or(a.program, program), flags...)}
	defer g.closeAll()
	other := watch(t, g.hg)
	counted := watchCounted(g)
	time.Sleep(200 * time.Millisecond) // for the bystander to get going
	before, calls, lates := g.cpu(), other.calls.Load(), other.late.Load()
	a.run(g)
	used := g.cpu() - before
	calls, lates = other.calls.Load()-calls, other.late.Load()-lates
	time.Sleep(settleTime)
	most := counted.stop()
	held := g.liveHeap()
	r := result{name: a.name, sent: g.sent.Load(), peakMiB: g.peak(), heldMiB: held, counted: most, cpu: used.Seconds(),
		uncounts: int(g.uncounts.Load()), bystander: other.stop(), notes: g.notes,
		during: int(calls), late: int(lates)}
	if g.hg.Exited() {
		t.Error("headgate ended")
	}
	return r
}

// settleTime is how long after an attack the memory that stays is measured: a
// receipt of an answer has ended by then.
const settleTime = 2500 * time.Millisecond

// countedMiB bounds what headgate counts as memory of connections, in any attack.
const countedMiB = 256

func (b *bounds) check(t *testing.T, r *result) {
	t.Helper()
	most := func(what string, got, want float64) {
		if got > want {
			t.Errorf("%s: %.4g, want at most %.4g", what, got, want)
		}
	}
	factor := size(1.0, 2.0)
	most("peak resident MiB", float64(r.peakMiB), factor*float64(b.peakMiB))
	most("MiB of live heap afterwards", float64(r.heldMiB), factor*float64(b.heldMiB))
	most("MiB that are counted for connections", float64(r.counted), countedMiB)
	most("CPU seconds", r.cpu, factor*b.cpu)
	most("share of the bystander's calls lost", r.bystander.lost(), b.lost)
	most("calls admitted without being counted", float64(r.uncounts), float64(b.uncounts))
	if r.bystander.calls == 0 {
		t.Error("the bystander made no call")
	}
}

// table renders results.
func table(results []result) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "attack\tsent\tpeak MiB\tcounted MiB\theld MiB\tCPU s\tuncounted\tbystander: "+
		"calls\tp50\tp99\terrors\tby policy\thealth errors\tnotes")
	for _, r := range results {
		s := &r.bystander
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%.2f\t%d\t%d\t%v\t%v\t%d\t%d\t%d\t%s\n", r.name, kib(r.sent), r.peakMiB,
			r.counted, r.heldMiB, r.cpu, r.uncounts,
			s.calls, s.quantile(0.5), s.quantile(0.99), s.errors, s.degraded, s.unhealthy, strings.Join(r.notes, "; "))
	}
	w.Flush()
	return b.String()
}

func kib(n int64) string {
	if n < 10<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
