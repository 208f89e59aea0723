package replay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// A load is a file of many requests, as long as the machine is the same day by day.
type load struct {
	name, rules string // the file of the rules; "": of one fixed window
	line        func(at time.Time, i int) string
	log         Mapping
}

const micros = "2006-01-02T15:04:05.000000Z"

var loads = []load{
	{name: "fixed_window", line: func(at time.Time, i int) string {
		return fmt.Sprintf(`{"t":"%s","domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"t%d"}]}],`+
			`"code":"OK"}`, at.Format(micros), i*7919%10_000)
	}},
	{name: "examples", rules: "../../../examples/envoy/rules.yaml", line: func(at time.Time, i int) string {
		tenant := i * 7919 % 1000
		return fmt.Sprintf(`{"t":"%s","domain":"shop","descriptors":[{"entries":[{"key":"remote_address",`+
			`"value":"10.0.%d.%d"}]},{"entries":[{"key":"tenant","value":"t%d"},{"key":"path","value":"/items"}]}],"code":"OK"}`,
			at.Format(micros), tenant/250, tenant%250, tenant)
	}},
	{name: "access_log", log: Mapping{Domain: "shop", Descriptors: []string{"tenant={tenant}"}, Time: "start"},
		line: func(at time.Time, i int) string {
			return fmt.Sprintf(`{"start":"%s","ms":%d,"method":"GET","path":"/pay?n=%d","tenant":"t%d","status":200,"bytes":%d,`+
				`"upstream":"10.0.0.%d:8080","request_id":"5f1c9a3e-%08x-4c5d-9e2f-%012x","user_agent":"curl/8.5.0"}`,
				at.Format("2006-01-02T15:04:05.000Z"), i%300, i, i*7919%10_000, i%9000, i%20, i, i)
		}},
}

// options makes the file.
func (l *load) options(tb testing.TB, n int) Options {
	tb.Helper()
	rules := l.rules
	if rules == "" {
		rules = filepath.Join(tb.TempDir(), "rules.yaml")
		write(tb, rules, "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 600}}]\n")
	}
	var text bytes.Buffer
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		text.WriteString(l.line(at.Add(time.Duration(i)*time.Millisecond), i) + "\n")
	}
	file := filepath.Join(tb.TempDir(), "lines")
	write(tb, file, text.String())
	return Options{Files: []string{file}, New: readSet(tb, rules), Log: l.log}
}

// BenchmarkReplay measures requests in a second of one core's time, from the file on: of one fixed window, in captures
// and in an access log, and of the rules in examples/envoy. GOMAXPROCS=1 has one core do all.
func BenchmarkReplay(b *testing.B) {
	const n = 500_000
	for _, l := range loads {
		b.Run(l.name, func(b *testing.B) {
			opt := l.options(b, n)
			b.ResetTimer()
			best := 0.0 // of the machine's figures, those are right that nobody else disturbs
			for b.Loop() {
				began := cpuTime(b)
				if r, err := Run(b.Context(), opt); err != nil || r.Requests != n {
					b.Fatalf("%+v, %v", r, err)
				}
				best = max(best, n/(cpuTime(b)-began).Seconds())
			}
			b.ReportMetric(best, "requests/cpu-s")
		})
	}
}

// Lines that are like others are neither parsed as a whole nor matched: that costs memory, and most of the time. Any
// machine is a tenth as fast as the figure in docs/change.md.
func TestSpeed(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector pools forget")
	}
	const n = 60_000
	for _, l := range loads {
		opt := l.options(t, n)
		var before, after runtime.MemStats
		best := 0.0
		for range 3 {
			runtime.ReadMemStats(&before)
			began := cpuTime(t)
			mustRun(t, opt)
			best = max(best, n/(cpuTime(t)-began).Seconds())
			runtime.ReadMemStats(&after)
		}
		// 10,000 tenants take up to 12 pieces each, for the line, the request and the counter.
		if made := float64(after.Mallocs-before.Mallocs) / n; made > 2.5 {
			t.Errorf("%s: %.1f pieces of memory for each line", l.name, made)
		}
		if best < 100_000 {
			t.Errorf("%s: %.0f requests in a second", l.name, best)
		}
	}
}

func write(tb testing.TB, name, text string) {
	tb.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func readSet(tb testing.TB, paths ...string) *descriptors.Set {
	tb.Helper()
	set, _, err := files.Load(paths, rulefile.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// cpuTime is what this process has used of all cores: the machine may be busy.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
