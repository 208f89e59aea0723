package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/backends/redis/script"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// TestCallsChooseTheScript: the common script believes that it gets nothing but what it decides, and the flags.
func TestCallsChooseTheScript(t *testing.T) {
	op := func(key string, spec limit.Spec) limit.Op {
		spec.Max, spec.Window = 10, time.Hour
		return limit.Op{Key: limit.Key{Group: "g", Limit: key}, Limit: limit.MustNew(spec), Cost: 1, Holder: "h"}
	}
	fixed := op("fixed", limit.Spec{Algorithm: limit.FixedWindow})
	saturating := op("saturating", limit.Spec{Algorithm: limit.FixedWindow, Overflow: limit.Saturate})
	owing := op("owing", limit.Spec{Algorithm: limit.FixedWindow, Overflow: limit.Debt})
	more := op("more", limit.Spec{Algorithm: limit.FixedWindow})
	sliding := op("sliding", limit.Spec{Algorithm: limit.SlidingWindow})
	saturatingSliding := op("saturatingSliding", limit.Spec{Algorithm: limit.SlidingWindow, Overflow: limit.Saturate})
	bucket := op("bucket", limit.Spec{Algorithm: limit.TokenBucket})
	log := op("log", limit.Spec{Algorithm: limit.SlidingLog})
	lease := op("lease", limit.Spec{Algorithm: limit.Concurrency})
	one := func(of ...limit.Op) (ops []limit.Op) {
		for i, op := range of {
			op.Choice = limit.Choice{Set: 1, Group: uint8(i)}
			ops = append(ops, op)
		}
		return ops
	}
	for _, layout := range []Layout{List, ZSet} {
		conf := DefaultConfig()
		conf.Layout = layout
		p, err := newPacker(&conf)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			ops    []limit.Op
			script *script.Script
			want   float64
		}{
			"a fixed window":                  {[]limit.Op{fixed}, script.Common, 0},
			"one that saturates":              {[]limit.Op{fixed, saturating}, script.Common, 0},
			"one with debt":                   {[]limit.Op{fixed, owing}, script.Full, 0},
			"a sliding window":                {[]limit.Op{fixed, sliding}, script.Common, flagOthers},
			"a token bucket":                  {[]limit.Op{bucket, sliding}, script.Common, flagOthers},
			"a sliding window that saturates": {[]limit.Op{saturatingSliding}, script.Full, 0},
			"a log":                           {[]limit.Op{fixed, log}, script.Full, 0},
			"a lease":                         {[]limit.Op{lease}, script.Full, 0},
			"two ops under a key":             {[]limit.Op{fixed, fixed}, script.Full, 0},

			"one of fixed windows":          {one(fixed, saturating), script.Common, flagChoices},
			"one of windows and buckets":    {one(saturatingSliding, bucket), script.Common, flagOthers + flagChoices},
			"one of two and a fixed window": {append(one(fixed, saturating), more), script.Common, flagChoices},
			"one with debt or another":      {one(owing, fixed), script.Full, 0},
			"one with a log or another":     {one(fixed, log), script.Full, 0},
			"one with a lease or another":   {one(lease, fixed), script.Full, 0},
			"one of two under a key":        {one(fixed, fixed), script.Full, 0},
			"one of two, and the first":     {append(one(fixed, saturating), fixed), script.Full, 0},
		} {
			call := p.newCall(&scratch{})
			call.add(-1, len(c.ops))
			call.addOps(&p.keys, c.ops)
			r := reader{s: string(call.seal()), ok: true}
			if got := float64(r.number()); got != c.want+p.flag || call.script != c.script {
				t.Errorf("layout %v, %s: flags %v, want %v; common script: %t", layout, name, got,
					c.want+p.flag, call.script == script.Common)
			}
		}
	}
}

// TestWhatTheCommonScriptDeclinesIsDecided: the common script does not decide on a state that lies ahead, as after a
// clock that has stepped back. The full one does, though the server knows neither script.
func TestWhatTheCommonScriptDeclinesIsDecided(t *testing.T) {
	s := testenv.StartRedis(t)
	b, c := open(t, s.URL()), s.Client()
	l := limit.MustNew(limit.Spec{Algorithm: limit.TokenBucket, Max: 10, Window: time.Hour})
	at := func(at limit.Instant) limit.Request {
		return limit.Request{At: at, Ops: []limit.Op{{Key: limit.Key{Group: "g", Limit: "b"}, Limit: l, Cost: 1}}}
	}
	now := limit.InstantOf(time.Now())
	take(t, b, at(now))
	c.ScriptFlush(t.Context())
	before := b.Stats()
	if v := take(t, b, at(now-1000))[0]; v.Err != nil || !v.Admitted || v.Outcomes[0].Remaining != 8 {
		t.Errorf("%+v, want 8 left", v)
	}
	after := b.Stats()
	if calls, missing := after.Calls-before.Calls, after.NoScript-before.NoScript; calls != 4 || missing != 2 {
		t.Errorf("%d calls, %d without the script there; want 4 and 2", calls, missing)
	}
}

// TestErrorsOfScriptsNameThePart: an operator sees which part asks for the right that is missing.
func TestErrorsOfScriptsNameThePart(t *testing.T) {
	s := testenv.StartRedis(t, testenv.WithACL(aclUser+" -rpush"))
	v := takeOne(open(t, s.URLFor("app", aclPassword)), "", 1, 0)
	if v.Err == nil || !strings.Contains(v.Err.Error(), "@log_write.lua:") {
		t.Errorf("the error is %v", v.Err)
	}
}
