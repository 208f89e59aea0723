package replay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/files"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
)

// BenchmarkReplay measures requests in a second of one core's time, from the file on: of one fixed window, and of the
// rules in examples/envoy.
func BenchmarkReplay(b *testing.B) {
	const n = 500_000
	for _, c := range []struct {
		name, rules string
		line        func(i int) string
	}{
		{"fixed_window", "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 600}}]\n",
			func(i int) string {
				return fmt.Sprintf(`[{"entries":[{"key":"tenant","value":"t%d"}]}]`, i*7919%10_000)
			}},
		{"examples", "", func(i int) string {
			tenant := i * 7919 % 1000
			return fmt.Sprintf(`[{"entries":[{"key":"remote_address","value":"10.0.%d.%d"}]},`+
				`{"entries":[{"key":"tenant","value":"t%d"},{"key":"path","value":"/items"}]}]`, tenant/250, tenant%250, tenant)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			rules := "../../../examples/envoy/rules.yaml"
			if c.rules != "" {
				rules = filepath.Join(b.TempDir(), "rules.yaml")
				write(b, rules, c.rules)
			}
			var text bytes.Buffer
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			for i := range n {
				fmt.Fprintf(&text, `{"t":"%s","domain":"shop","descriptors":%s}`+"\n",
					at.Add(time.Duration(i)*time.Millisecond).Format("2006-01-02T15:04:05.000000Z"), c.line(i))
			}
			file := filepath.Join(b.TempDir(), "capture.jsonl")
			write(b, file, text.String())
			opt := Options{Files: []string{file}, New: load(b, rules)}
			b.ResetTimer()
			began := cpuTime(b)
			for b.Loop() {
				if r, err := Run(b.Context(), opt); err != nil || r.Requests != n {
					b.Fatalf("%+v, %v", r, err)
				}
			}
			b.ReportMetric(float64(n*b.N)/(cpuTime(b)-began).Seconds(), "requests/cpu-s")
		})
	}
}

func write(tb testing.TB, name, text string) {
	tb.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func load(tb testing.TB, paths ...string) *descriptors.Set {
	tb.Helper()
	none := func(*descriptors.Set) []descriptors.Problem { return nil }
	set, problems, err := files.Check(paths, rulefile.Options{}, none)
	if err != nil || set == nil {
		tb.Fatal(err, problems)
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
