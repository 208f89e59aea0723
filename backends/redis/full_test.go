package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// unwritable are the ways in which Redis answers and takes no writes. Full: it still takes those that need
// no memory.
var unwritable = []struct {
	name, setting, value, undo string
	full                       bool
}{
	{"full", "maxmemory", "1", "0", true},
	{"lacks replicas", "min-replicas-to-write", "1", "0", false},
}

// fullOps are ops under a key, of three units per hour each.
func fullOps(b *Backend, group string) (ops []limit.Op) {
	for _, a := range limit.AllAlgorithms() {
		spec := limit.Spec{Algorithm: a, Max: 3, Window: time.Hour}
		if a.Is(limit.Refilled) {
			spec.Burst = 3
		}
		if a.Is(limit.Leased) {
			spec.Hold = time.Hour
		}
		l, err := limit.New(spec)
		caps := b.Caps()
		if err != nil || caps.Check(l) != nil {
			continue
		}
		ops = append(ops, limit.Op{Key: limit.Key{Group: group, Limit: "l/" + a.String()}, Limit: l, Cost: 1})
	}
	return ops
}

var holders = 0

// takeEach takes each op as a request of its own, all in one slice. Each acquires another lease.
func takeEach(t *testing.T, b *Backend, ops ...limit.Op) []limit.Verdict {
	t.Helper()
	reqs, out := make([]limit.Request, len(ops)), make([]limit.Verdict, len(ops))
	for i := range ops {
		if ops[i].Limit.Is(limit.Leased) {
			holders++
			ops[i].Holder = fmt.Sprintf("h%015d", holders)
		}
		reqs[i] = limit.Request{Ops: ops[i : i+1 : i+1]}
		if !b.Caps().ServerClock {
			reqs[i].At = limit.InstantOf(time.Now().Truncate(time.Second))
		}
	}
	b.Take(t.Context(), reqs, out)
	return out
}

// Whoever can fill Redis opens no limit: a Redis that is full, or takes no writes, still refuses who has used
// up a limit, also in a slice with keys that it has no room for. One that is full goes on counting what it has
// counters for, also in requests that bring new keys.
func TestWhoHasUsedUpALimitIsRefusedByAFullRedis(t *testing.T) {
	for _, flavour := range []string{testenv.Redis, testenv.Redis62, testenv.Valkey} {
		for _, layout := range []string{"list", "zset", "envoy"} {
			for _, way := range unwritable {
				t.Run(flavour+"/"+layout+"/"+way.name, func(t *testing.T) {
					server := testenv.StartRedis(t, testenv.WithFlavour(flavour))
					b := open(t, server.URL()+"?layout="+layout)
					done, half, fresh := fullOps(b, "done"), fullOps(b, "half"), fullOps(b, "new")
					for range 3 {
						takeEach(t, b, done...)
					}
					takeEach(t, b, half...)
					server.Client().ConfigSet(t.Context(), way.setting, way.value)
					for i, op := range done {
						refusedInAFullRedis(t, b, op, fresh[i])
						countedInAFullRedis(t, b, half[i], fresh[i], way.full)
					}
					server.Client().ConfigSet(t.Context(), way.setting, way.undo)
					for i, v := range takeEach(t, b, fresh...) {
						if v.Err != nil || !v.Admitted || v.Outcomes[0].Remaining != 2 {
							t.Errorf("%v: after it was full, a key that had no room: %+v", fresh[i].Limit, v)
						}
					}
				})
			}
		}
	}
}

func refusedInAFullRedis(t *testing.T, b *Backend, done, fresh limit.Op) {
	t.Helper()
	out := takeEach(t, b, fresh, done)
	if out[1].Err != nil || out[1].Admitted {
		t.Errorf("%v, used up: %+v", done.Limit, out[1])
	}
	if err := out[0].Err; !errors.Is(err, backends.ErrDeclined) || !errors.Is(err, backends.ErrNotApplied) {
		t.Errorf("%v, a new key: %v", fresh.Limit, err)
	}
}

// countedInAFullRedis takes what is left of a limit of which one unit of three is taken.
func countedInAFullRedis(t *testing.T, b *Backend, half, fresh limit.Op, full bool) {
	t.Helper()
	if half.Limit.Is(limit.Leased|limit.Logged) || !full {
		err := takeEach(t, b, half)[0].Err
		if !errors.Is(err, backends.ErrDeclined) || !errors.Is(err, backends.ErrNotApplied) {
			t.Errorf("%v, not used up, needs memory: %v", half.Limit, err)
		}
		return
	}
	both := limit.Request{Ops: []limit.Op{half, fresh}}
	if !b.Caps().ServerClock {
		both.At = limit.InstantOf(time.Now().Truncate(time.Second))
	}
	out := make([]limit.Verdict, 1)
	b.Take(t.Context(), []limit.Request{both}, out)
	if err := out[0].Err; !errors.Is(err, backends.ErrDeclined) || errors.Is(err, backends.ErrNotApplied) {
		t.Errorf("%v, a request that needs a new key, too: %+v", half.Limit, out[0])
	}
	for i, admitted := range []bool{true, false, false} {
		if v := takeEach(t, b, half)[0]; v.Err != nil || v.Admitted != admitted {
			t.Errorf("%v, take %d of a full Redis: %+v, want admitted %v", half.Limit, i+3, v, admitted)
		}
	}
	b.Take(t.Context(), []limit.Request{both}, out)
	if out[0].Err != nil || out[0].Admitted {
		t.Errorf("%v, used up, beside a new key: %+v", half.Limit, out[0])
	}
}

// TestFullClusterCountsWhereItHasKeys: on a Cluster, too, a request that brings a new key is counted by the limits
// whose keys are there, on whichever server these are.
func TestFullClusterCountsWhereItHasKeys(t *testing.T) {
	s := testenv.StartRedisCluster(t)
	b := open(t, "redis+cluster://"+strings.Join(s.Addrs, ","))
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 10, Window: 24 * time.Hour})
	op := func(group string) limit.Op {
		return limit.Op{Key: limit.Key{Group: group, Limit: "l"}, Limit: l, Cost: 1}
	}
	mine := op("mine" + rand.Text())
	takeEach(t, b, mine)
	full := func(value string) {
		check := eachMaster(t.Context(), b.client, func(ctx context.Context, node *redis.Client) error {
			return node.ConfigSet(ctx, "maxmemory", value).Err()
		})
		if check != nil {
			t.Fatal(check)
		}
	}
	full("1")
	defer full("0")
	refused := 0
	for i := range 30 {
		out := make([]limit.Verdict, 1)
		b.Take(t.Context(), []limit.Request{{Ops: []limit.Op{mine, op(fmt.Sprint("new", i, rand.Text()))}}}, out)
		switch v := out[0]; {
		case v.Err == nil && !v.Admitted:
			refused++
		case !errors.Is(v.Err, backends.ErrDeclined):
			t.Errorf("request %d: %+v", i, v)
		}
	}
	if refused != 21 {
		t.Errorf("%d of 30 requests with new keys are refused, want 21", refused)
	}
}
