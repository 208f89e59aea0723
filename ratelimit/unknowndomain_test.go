package ratelimit

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestDomainsThatNoRulesHaveAreInTheLog: a caller whose domain no rules have is not limited, and the
// log says so once in a while, with the domain that may be meant. A domain without a rule for the
// descriptor is nothing to log.
func TestDomainsThatNoRulesHaveAreInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t, "domain: shopping\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
		h.askDomain("shopping", 1, desc("b=1"))
		if log := h.log.String(); log != "" {
			t.Errorf("a descriptor without a rule is logged: %s", log)
		}
		for range 3 {
			h.want(h.askDomain("shoping", 1, desc("a=1"), desc("b=1")), "OK: ok ok")
		}
		const line = `level=WARN msg="requests of a domain that no rules have are not limited" domain=shoping ` +
			`similar=shopping`
		if log := h.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, line) {
			t.Errorf("the log is\n%swant one line with\n%s", log, line)
		}
		time.Sleep(unknownDomainEvery)
		h.askDomain(strings.Repeat("x", 5000), 1, desc("a=1"))
		if log := h.log.String(); strings.Count(log, "\n") != 2 ||
			!strings.Contains(log, "domain="+strings.Repeat("x", 57)+"... similar=\"\"\n") {
			t.Errorf("after a while the log is\n%s", log)
		}
	})
}
