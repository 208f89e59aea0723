package backendtest

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// checkKeys: different keys are different counters, whatever bytes they are
// made of and however long.
func checkKeys(e *env) {
	e.open()
	now := e.start()
	long := strings.Repeat("x", backends.MaxKeyLen-1)
	rest := strings.Repeat("x", e.s.Caps.MaxGroupLen()-len(e.prefix)-2) // of a group
	pairs := []limit.Key{
		{Group: "ab", Limit: "c"}, {Group: "a", Limit: "bc"}, {Group: "", Limit: "abc"}, {Group: "abc", Limit: ""},
		{Group: "a:b", Limit: "c"}, {Group: "a", Limit: "b:c"}, {Group: "a\x00b", Limit: "c"},
		{Group: "a", Limit: "\x00b\x00c"},
		{Group: "Case", Limit: "x"}, {Group: "case", Limit: "x"}, {Group: "case", Limit: "X"},
		{Group: "space", Limit: "x"}, {Group: "space ", Limit: "x"}, {Group: "space", Limit: "x "},
		{Group: " space", Limit: "x"},
		{Group: "{tag}", Limit: "x"}, {Group: "{tag", Limit: "}x"}, {Group: "%s'\"\\;--", Limit: "*?[]"},
		{Group: "\xff\xfe", Limit: "\x80"}, {Group: "\xff", Limit: "\x80"}, {Group: "é", Limit: "x"},
		{Group: "e\u0301", Limit: "x"}, {Group: "e", Limit: "x"},
		{Group: "\r\n", Limit: "\t"}, {Group: "\n", Limit: "\t"},
		{Group: rest + "1", Limit: long + "1"}, {Group: rest + "2", Limit: long + "1"},
		{Group: rest + "1", Limit: long + "2"},
	}
	for _, a := range e.algorithms() {
		l := e.limit(a, 1, time.Hour)
		var reqs []limit.Request
		for _, k := range pairs {
			k.Group = e.prefix + strconv.Itoa(int(a)) + k.Group
			reqs = append(reqs, request(now, k, l, 1))
		}
		for i, v := range e.takeAll(reqs) {
			if !v.Admitted {
				e.Errorf("%v: %q met another key's state", a, reqs[i].Ops[0].Key)
			}
		}
		for i, v := range e.takeAll(reqs) {
			if v.Admitted {
				e.Errorf("%v: %q did not meet its own state", a, reqs[i].Ops[0].Key)
			}
		}
	}
}

// checkRawGroups: limits under a group that is shared with other programs, a raw
// one, count apart if their keys differ; where the backend keeps one log for all
// of them it says so, and turns down what would drop what another still counts.
func checkRawGroups(e *env) {
	e.open()
	now := e.start()
	for _, a := range e.algorithms() {
		short, long := e.limit(a, 2, time.Second), e.limit(a, 4, time.Minute)
		group := limit.RawGroup(e.prefix + a.String())
		k1, k2 := limit.Key{Group: group, Limit: "short"}, limit.Key{Group: group, Limit: "long"}
		if e.s.Caps.Shared(short) {
			e.sharedLog(now, k1, k2, short, long)
			continue
		}
		m := newModel()
		for i := range 12 { // more often than the long limit allows, in three short windows
			at := now + e.up(limit.Instant(i)*250_000)
			for _, req := range []limit.Request{request(at, k1, short, 1), request(at, k2, long, 1)} {
				want, got := m.take(&req, at), e.take(req)
				if d := differ(&got, &want); d != "" {
					e.Fatalf("%v under %q: %s%s", a, group, d, m.past(&req))
				}
			}
		}
	}
}

// sharedLog: limits of one window count together, and limits of several windows
// are not taken in one request.
func (e *env) sharedLog(now limit.Instant, k1, k2 limit.Key, short, long *limit.Limit) {
	e.takeOne(now, k1, short, 1)
	if out := e.takeOne(now, k2, short, 1); !out.Admitted || out.Remaining != short.Capacity()-2 {
		e.Errorf("two limits that share a log do not count together: %+v", out)
	}
	if out := e.takeOne(now, limit.Key{Group: k1.Group[1:], Limit: k1.Limit}, short, 1); out.Remaining !=
		short.Capacity()-1 {
		e.Errorf("a group that is not raw shares the log of one that is: %+v", out)
	}
	req := limit.Request{At: now, Ops: []limit.Op{{Key: k1, Limit: short, Cost: 1}, {Key: k2, Limit: long, Cost: 1}}}
	ctx, cancel := calm()
	defer cancel()
	out := make([]limit.Verdict, 1)
	e.b.Take(ctx, []limit.Request{req}, out)
	e.wantError("windows that differ under one log", out[0].Err, backends.ErrUnsupported, backends.ErrNotApplied)
}

// checkForget: a forgotten key is unused, its neighbours are not.
func checkForget(e *env) {
	e.open()
	now := e.start()
	for _, a := range e.algorithms() {
		l := e.limit(a, 1, time.Hour)
		k, beside, elsewhere := e.key("g", "forgotten", a), e.key("g", "kept", a), e.key("h", "forgotten", a)
		for round := range 2 {
			for _, k := range []limit.Key{k, beside, elsewhere} {
				e.takeOne(now, k, l, 1)
			}
			e.forget(k, e.key("g", "never used", a), k)
			if out := e.takeOne(now, k, l, 1); !out.Admitted {
				e.Errorf("%v, round %d: a forgotten key still has state: %+v", a, round, out)
			}
			for _, k := range []limit.Key{beside, elsewhere} {
				if out := e.takeOne(now, k, l, 1); out.Admitted {
					e.Errorf("%v: %q went with another key", a, k)
				}
			}
		}
		// A forgotten key has no instant either: it may be used in the past.
		e.forget(k)
		past := now - limit.Instant(10*time.Minute/time.Microsecond)
		if out := e.takeOne(past, k, l, 1); !out.Admitted {
			e.Errorf("%v: a forgotten key still has an instant: %+v", a, out)
		}
	}
	e.forget()
	var many []limit.Key
	for range 1000 {
		many = append(many, e.key("many", "x", limit.FixedWindow), e.key("g", "forgotten", limit.FixedWindow))
	}
	e.forget(many...)
}
