package redis

import (
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// TestCallsSayWhichPathTheScriptMayTake: take.lua believes the flags, which its straight path
// depends on.
func TestCallsSayWhichPathTheScriptMayTake(t *testing.T) {
	op := func(key string, spec limit.Spec) limit.Op {
		spec.Max, spec.Window = 10, time.Hour
		return limit.Op{Key: limit.Key{Group: "g", Limit: key}, Limit: limit.MustNew(spec), Cost: 1, Holder: "h"}
	}
	fixed := op("fixed", limit.Spec{Algorithm: limit.FixedWindow})
	saturating := op("saturating", limit.Spec{Algorithm: limit.FixedWindow, Overflow: limit.Saturate})
	owing := op("owing", limit.Spec{Algorithm: limit.FixedWindow, Overflow: limit.Debt})
	sliding := op("sliding", limit.Spec{Algorithm: limit.SlidingWindow})
	saturatingSliding := op("saturatingSliding", limit.Spec{Algorithm: limit.SlidingWindow, Overflow: limit.Saturate})
	bucket := op("bucket", limit.Spec{Algorithm: limit.TokenBucket})
	log := op("log", limit.Spec{Algorithm: limit.SlidingLog})
	lease := op("lease", limit.Spec{Algorithm: limit.Concurrency})
	for _, layout := range []Layout{List, ZSet} {
		conf := DefaultConfig()
		conf.Layout = layout
		p, err := newPacker(&conf)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			ops  []limit.Op
			want float64
		}{
			"a fixed window":                  {[]limit.Op{fixed}, 2},
			"one that saturates":              {[]limit.Op{fixed, saturating}, 2},
			"one with debt":                   {[]limit.Op{fixed, owing}, 0},
			"a sliding window":                {[]limit.Op{fixed, sliding}, 4},
			"a token bucket":                  {[]limit.Op{bucket, sliding}, 4},
			"a sliding window that saturates": {[]limit.Op{saturatingSliding}, 0},
			"a log":                           {[]limit.Op{fixed, log}, 0},
			"a lease":                         {[]limit.Op{lease}, 0},
			"two ops under a key":             {[]limit.Op{fixed, fixed}, 0},
		} {
			call := p.newCall(&scratch{})
			call.add(-1, len(c.ops))
			call.addOps(&p.keys, c.ops)
			r := reader{s: string(call.seal()), ok: true}
			if got := float64(r.number()); got != c.want+p.flag {
				t.Errorf("layout %v, %s: flags %v, want %v", layout, name, got, c.want+p.flag)
			}
		}
	}
}
