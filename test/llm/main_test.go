// Package llm tests budgets of tokens in front of a model, behind stock Envoys. What is spent is counted by the model,
// which knows nothing of headgate.
package llm

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

var program, sources string

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	testenv.Main(m, func(root, dir string) (err error) {
		sources = root
		program, err = testenv.BuildHeadgate(root, dir)
		return err
	})
}

var envoys = []string{"1.40.0", "1.38.3", "1.36.4"}

// A place is what a proof runs on.
type place struct {
	envoy     string
	store     string
	headgates int
}

var stores = []string{"memory", "redis", "postgres"}

// everywhere runs a proof on every store, with two headgates where they can share it, behind the newest Envoy, and in
// the long form behind every Envoy.
func everywhere(t *testing.T, prove func(*testing.T, place)) {
	t.Parallel()
	versions := envoys
	if !random.Long() {
		versions = versions[:1]
	}
	for _, v := range versions {
		for _, store := range stores {
			t.Run(fmt.Sprintf("envoy-%s %s", v, store), func(t *testing.T) {
				testenv.Require(t, "envoy-"+v)
				p := place{v, store, 2}
				if store == "memory" {
					p.headgates = 1
				}
				prove(t, p)
			})
		}
	}
}

// inMemory is a proof of what does not depend on the store, behind every Envoy in the long form.
func inMemory(t *testing.T, prove func(*testing.T, place)) {
	t.Parallel()
	versions := envoys
	if !random.Long() {
		versions = versions[:1]
	}
	for _, v := range versions {
		t.Run("envoy-"+v, func(t *testing.T) {
			testenv.Require(t, "envoy-"+v)
			prove(t, place{v, "memory", 1})
		})
	}
}

// backend returns flags that have headgate use the place's store.
func (p place) backend(t *testing.T) []string {
	t.Helper()
	switch p.store {
	case "redis":
		return []string{"--backend", testenv.StartRedis(t).URL()}
	case "postgres":
		return []string{"--backend", testenv.StartDatabase(t, testenv.Postgres).URL()}
	}
	return []string{"--backend", "memory://"}
}

// start starts a lab at a place.
func (p place) start(t *testing.T, s llmtest.Setup) *llmtest.Lab {
	t.Helper()
	s.Root, s.Program, s.Envoy, s.Headgates = sources, program, p.envoy, p.headgates
	s.Serve = append(p.backend(t), s.Serve...)
	l := llmtest.StartLab(t, s)
	t.Cleanup(func() {
		if t.Failed() {
			for _, h := range l.Headgates {
				text := h.Log()
				t.Logf("headgate's log ends with:\n%s", text[max(0, len(text)-3000):])
			}
		}
	})
	return l
}

const budget = 1_000_000

// rules are those of a budget for each user; a limit is given in YAML.
func rules(reserve string, limits ...string) string {
	text := "domain: llm\ndescriptors:\n- key: x-user\n"
	return text + under("  ", reserve, limits)
}

// gatewayRules are the same for Envoy Gateway's descriptors.
func gatewayRules(reserve string, limits ...string) string {
	return fmt.Sprintf("domain: %s\ndescriptors:\n- key: '%[2]s'\n  value: '%[2]s'\n  descriptors:\n  - key: %[3]s\n",
		llmtest.GatewayDomain, llmtest.GatewayRoute, llmtest.GatewayUser) + under("    ", reserve, limits)
}

func under(indent, reserve string, limits []string) string {
	text := indent + "overflow: debt\n"
	if reserve != "" {
		text = indent + "reserve: " + reserve + "\n"
	}
	text += indent + "limits:\n"
	for _, l := range limits {
		text += indent + "- " + l + "\n"
	}
	return text
}

// perHour is a budget that does not refill during a test.
var perHour = fmt.Sprintf("{name: hour, algorithm: fixed_window, limit: %d, window: 1h}", budget)

// perMinute is the same as a bucket.
var perMinute = fmt.Sprintf("{name: tpm, algorithm: token_bucket, rate: %d/min}", budget)

// insideHour waits if the clock hour would end during a test.
func insideHour() {
	if left := time.Hour - time.Duration(time.Now().UnixNano())%time.Hour; left < time.Minute {
		time.Sleep(left)
	}
}

// long is a stream that uses all that it may, 100,000 tokens.
func long(user string) llmtest.Call {
	return llmtest.Call{User: user, Stream: true, MaxTokens: 100_000,
		Plan: llmtest.Plan{Output: 100_000, Takes: time.Second}}
}

// spent is what the model counted for a user.
func spent(l *llmtest.Lab, user string) int64 {
	n, _ := l.Model.Spent(user, time.Time{})
	return n
}

// metric adds up the series of a metric of all headgates whose labels include the given ones.
func metric(t *testing.T, l *llmtest.Lab, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
	for _, h := range l.Headgates {
		if h.Exited() {
			continue
		}
		page, err := h.Fetch("/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(page) {
			series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.ParseFloat(value, 64); err == nil && hasAll(series, name, labels) {
				sum += n
			}
		}
	}
	return sum
}

func hasAll(series, name string, labels []string) bool {
	if got, _, _ := strings.Cut(series, "{"); got != name {
		return false
	}
	for _, l := range labels {
		if !strings.Contains(series, l) {
			return false
		}
	}
	return true
}

// logNormal draws a number of tokens around a median.
func logNormal(r *rand.Rand, median float64) int64 {
	return int64(median * math.Exp(r.NormFloat64()/2))
}
