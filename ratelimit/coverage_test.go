package ratelimit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// TestDomainsThatNoRulesHaveAreInTheLog: a caller whose domain no rules have is not limited, and the
// log says so once in a while, with the domain that may be meant.
func TestDomainsThatNoRulesHaveAreInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t, "domain: shopping\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
		for range 3 {
			h.want(h.askDomain("shoping", 1, desc("a=1"), desc("b=1")), "OK: ok ok")
		}
		const line = `level=WARN msg="requests of a domain that no rules have are not limited" domain=shoping ` +
			`similar=shopping`
		if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, line) {
			t.Errorf("the log is\n%swant one line with\n%s", log, line)
		}
		time.Sleep(time.Minute)
		h.askDomain(strings.Repeat("x", 5000), 1, desc("a=1"))
		if log := h.log.String(); strings.Count(log, "\n") != 2 ||
			!strings.Contains(log, "domain="+strings.Repeat("x", 57)+"... similar=\"\"\n") {
			t.Errorf("after a while the log is\n%s", log)
		}
		if n := len(h.Coverage().Shapes()); n != 0 {
			t.Errorf("%d shapes of domains that callers made up", n)
		}
	})
}

const coveredRules = `domain: shop
descriptors:
- key: tenant
  rate_limit: {unit: day, requests_per_unit: 100}
  descriptors:
  - {key: path, value: /pay, rate_limit: {unit: day, requests_per_unit: 100}}
- {key: free, rate_limit: {unlimited: true}}
`

// TestShapesWithoutARuleAreInTheLog: each shape of descriptors that no rule matches is named once, at most one in a
// minute, with the reason and the key that may be meant.
func TestShapesWithoutARuleAreInTheLog(t *testing.T) {
	for shape, why := range map[string]string{
		"tenantt=acme":              `no rule has the key \"tenantt\" (entry 1); did you mean \"tenant\"?`,
		"tenant=acme,path=/x":       `rules have the key \"path\" (entry 2), but not for this value`,
		"tenant=acme,path=/pay,a=b": "the rules end after entry 2, and the descriptor has 3 entries",
		"free=a,b=c":                "the rules end after entry 1, and the descriptor has 2 entries",
	} {
		synctest.Test(t, func(t *testing.T) {
			h := setup(t, coveredRules, func(c *Config) { c.LogKeys = true })
			for range 3 {
				h.want(h.askDomain("shop", 1, desc(shape)), "OK: ok")
			}
			line := `level=WARN msg="descriptors that no rule matches are not limited" domain=shop entries=`
			if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, line) ||
				!strings.Contains(log, `why="`+why) || !strings.Contains(log, "key=") {
				t.Errorf("%s: the log is\n%swant\n%s", shape, log, why)
			}
			h.askDomain("shop", 1, desc("other=1"))
			h.askDomain("shop", 1, desc("tenant=1"))
			if log := h.log.String(); strings.Count(log, "\n") != 1 {
				t.Errorf("two lines in a minute:\n%s", log)
			}
			time.Sleep(time.Minute)
			h.askDomain("shop", 1, desc("other=1"))
			h.askDomain("shop", 1, desc(shape))
			if log := h.log.String(); strings.Count(log, "\n") != 2 || !strings.Contains(log, "entries=other ") {
				t.Errorf("the second shape is not named in the next minute:\n%s", log)
			}
		})
	}
}

// TestCoverageCountsShapes that rules match and that none does, and when each was seen.
func TestCoverageCountsShapes(t *testing.T) {
	h := setup(t, coveredRules, unlogged)
	for range 3 {
		h.askDomain("shop", 1, desc("tenant=a"), desc("tenant=b,path=/pay"), desc("tenantt=a"))
	}
	h.askDomain("shop", 1, desc("free=a"), desc("tenant=b,path=/other"))
	var got []string
	for _, s := range h.Coverage().Shapes() {
		got = append(got, fmt.Sprintf("%s/%s %d %d %s", s.Domain, strings.Join(s.Keys, ","), s.Matched(),
			s.Missed.Value(), s.Example))
		if s.Last().IsZero() || s.First == 0 {
			t.Errorf("%s: first %v, last %v", s.Example, s.First, s.Last())
		}
	}
	if covered, uncovered := calls(h.Coverage().Shapes()); covered != 4 || uncovered != 0 {
		t.Errorf("calls: %d covered, %d not", covered, uncovered)
	}
	want := "shop/free 1 0 shop|free=a;shop/tenant 3 0 shop|tenant=a;shop/tenant,path 3 1 shop|tenant=b|path=/pay;" +
		"shop/tenantt 0 3 shop|tenantt=a"
	if strings.Join(got, ";") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ";"), want)
	}
}

// calls returns how many calls of shapes had a descriptor that a rule matched, and how many had none.
func calls(shapes []*Shape) (covered, uncovered int64) {
	for _, s := range shapes {
		covered, uncovered = covered+s.Covered(), uncovered+s.Uncovered.Value()
	}
	return covered, uncovered
}

// TestShapesAreBounded: a client that sends a million shapes fills a counter of others, and nothing else.
func TestShapesAreBounded(t *testing.T) {
	h := setup(t, coveredRules, unlogged)
	h.askDomain("shop", 1, desc("tenant=a"))
	for i := range 3000 {
		h.askDomain("shop", 1, desc(fmt.Sprintf("k%d=v", i)))
	}
	h.askDomain("shop", 1, desc(strings.Repeat("k", 5000)+"=v"))
	shapes := h.Coverage().Shapes()
	rest := shapes[len(shapes)-1]
	if len(shapes) != 1001 || rest.Keys != nil || rest.Missed.Value() != 2002 {
		t.Errorf("%d shapes, and %d others", len(shapes), rest.Missed.Value())
	}
	if covered, uncovered := calls(shapes); uncovered != 3001 || covered != 1 {
		t.Errorf("calls: %d covered, %d not", covered, uncovered)
	}
	rows := h.Coverage().Rows()
	rows[1].Each(func(labels []string, value float64, _ *metrics.Counts) {
		if labels[0] != "shop" || value != 3001 {
			t.Errorf("%v: %v unmatched", labels, value)
		}
	})
}

// TestNewRulesAreNamedInTheLog: what came, went or has other figures is one line of the log and is kept. A domain in
// use that has no rules any more is a warning. A shape that had a rule and has none any more is named.
func TestNewRulesAreNamedInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told [][]string
		h := setup(t, coveredRules, func(c *Config) {
			c.RulesChanged = func(changes []string) { told = append(told, changes) }
		})
		h.askDomain("shop", 1, desc("tenant=a"))
		must := func(rules string) string {
			t.Helper()
			h.log.Reset()
			if err := h.SetRules(mustLoad(t, rules)); err != nil {
				t.Fatal(err)
			}
			return h.log.String()
		}
		if log := must(coveredRules + "# again\n"); log != "" {
			t.Errorf("nothing differs: %s", log)
		}
		log := must(strings.ReplaceAll(coveredRules, "rate_limit: {unit: day, requests_per_unit: 100}\n  desc",
			"rate_limit: {unit: day, requests_per_unit: 1}\n  desc"))
		if want := `msg="rules changed" limits=1 taken_away=0 changes="[shop/tenant 100/24h -> 1/24h]"`; strings.Count(log,
			"\n") != 1 || !strings.Contains(log, want) {
			t.Errorf("the log is\n%swant\n%s", log, want)
		}
		log = must("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]")
		if !strings.Contains(log, "taken_away=2") || strings.Contains(log, "WARN") {
			t.Errorf("the log is\n%s", log)
		}
		h.askDomain("shop", 1, desc("tenant=a"))
		if log := h.log.String(); !strings.Contains(log, "descriptors that no rule matches") {
			t.Errorf("a shape that had a rule is not named:\n%s", log)
		}
		log = must("domain: store\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]")
		if !strings.Contains(log, `level=WARN msg="a domain that is in use has no rules any more: its requests are not `+
			`limited" domain=shop last_asked=`) {
			t.Errorf("the log is\n%s", log)
		}
		for i := range 30 {
			must(fmt.Sprintf("domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: %d}}]", i))
		}
		if len(told) != 33 || strings.Join(told[32], "") != "shop/user 28/24h -> 29/24h" {
			t.Errorf("%d changes, the last one %v", len(told), told[len(told)-1])
		}
	})
}

// TestClockThatStepsBack: an event is allowed again, and a shape is not seen last in the future.
func TestClockThatStepsBack(t *testing.T) {
	var m minutely
	var s Shape
	now := time.Now()
	ahead := now.Add(24 * time.Hour)
	if !m.allow(ahead) || m.allow(ahead) || !m.allow(now) || m.allow(now.Add(time.Second)) {
		t.Error("want an event, and another one when the clock has stepped back")
	}
	s.Seen(ahead.UnixMicro())
	s.Seen(now.UnixMicro())
	if s.Last().After(now) {
		t.Errorf("the shape was seen last at %v, which is ahead of %v", s.Last(), now)
	}
}
