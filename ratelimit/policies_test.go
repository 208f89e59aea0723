package ratelimit

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
)

const policyRules = `
domain: d
descriptors:
- key: user
  policy: user:{user}
  limits: [{name: main, algorithm: sliding_window, limit: 5, window: 1m}]
- key: plain
  rate_limit: {unit: minute, requests_per_unit: 5}
- key: a
  descriptors:
  - {key: b, policy: "b:{b}|a:{a}", rate_limit: {unit: day, requests_per_unit: 5}, overflow: saturate}
`

// put installs policies, or removes those without an algorithm.
func (h *harness) put(list map[string]policies.Figures) {
	set := h.conf.Policies
	var changes []policies.Change
	for key, f := range list {
		changes = append(changes, policies.Change{Key: key, Figures: f, Removed: f.Algorithm == 0})
	}
	set.Install(set.Snapshot().With(changes), time.Now())
}

func withPolicies(c *Config) { c.Policies = new(policies.Set) }

func per(a limit.Algorithm, capacity int64, window policies.Amount) policies.Figures {
	return policies.Figures{Algorithm: a, Capacity: capacity, Window: window * policies.One}
}

func bucket(capacity int64, refill policies.Amount) policies.Figures {
	return policies.Figures{Algorithm: limit.TokenBucket, Capacity: capacity, Refill: refill}
}

// left asks once, and wants this many units to be left; -1: the request is refused.
func (h *harness) left(descriptor string, want int64) {
	h.Helper()
	text := fmt.Sprintf("OK: ok/%d", want)
	if want < 0 {
		text = "OVER: over/0"
	}
	h.want(h.ask(desc(descriptor)), text)
}

func TestPoliciesTakeThePlaceOfLimits(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	h.left("user=alice", 4)
	h.put(map[string]policies.Figures{"user:alice": per(limit.SlidingWindow, 3, 60)})
	h.left("user=alice", 1) // the counter stays, the lower capacity cuts it off
	h.left("user=alice", 0)
	h.left("user=alice", -1)
	h.left("user=bob", 4)
	h.left("plain=alice", 4)
	h.put(map[string]policies.Figures{"user:alice": {}})
	h.left("user=alice", 1) // the rule's own limit again, with three taken
}

func TestPoliciesAreLookedUpInOrder(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	none := policies.Figures{}
	h.put(map[string]policies.Figures{"*": per(limit.SlidingWindow, 10, 60)})
	h.left("user=a", 9)
	h.left("a=x,b=y", 9)
	h.left("plain=x", 4) // has not opted in
	h.put(map[string]policies.Figures{"d/user": per(limit.SlidingWindow, 20, 60)})
	h.left("user=b", 19)
	h.left("a=x,b=z", 9)
	h.put(map[string]policies.Figures{"d/user:main": per(limit.SlidingWindow, 30, 60)})
	h.left("user=c", 29)
	h.put(map[string]policies.Figures{"user:d": per(limit.SlidingWindow, 40, 60),
		"b:y|a:x": per(limit.FixedWindow, 50, 3600)})
	h.left("user=d", 39)
	h.left("a=x,b=y", 49)
	h.put(map[string]policies.Figures{"user:d": none, "d/user": none, "d/user:main": none, "*": none})
	h.left("user=e", 4)
}

// TestPoliciesKeepCounters: a token bucket's level is cut off by a lower capacity, and a higher one
// grants nothing at once; another algorithm starts afresh.
func TestPoliciesKeepCounters(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	h.put(map[string]policies.Figures{"user:a": bucket(100, policies.One/1000)})
	h.left("user=a", 99)
	h.put(map[string]policies.Figures{"user:a": bucket(10, policies.One/1000)})
	h.left("user=a", 9)
	h.put(map[string]policies.Figures{"user:a": bucket(1000, policies.One/1000)})
	h.left("user=a", 8)
	h.put(map[string]policies.Figures{"user:a": per(limit.SlidingLog, 3, 60)})
	h.left("user=a", 2)
	h.put(map[string]policies.Figures{"user:a": bucket(1000, policies.One/1000)})
	h.left("user=a", 7)
	h.put(map[string]policies.Figures{"user:a": per(limit.FixedWindow, 0, 60)})
	h.left("user=a", -1)
}

// TestPoliciesHaveTheRulesOverflow: what a rule says beside its limit holds under a policy, too.
func TestPoliciesHaveTheRulesOverflow(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	h.put(map[string]policies.Figures{"b:y|a:x": per(limit.FixedWindow, 8, 86400)})
	h.want(h.ask(desc("a=x,b=y").withHits(20)), "OVER: over/0") // saturate takes what is left
	h.left("a=x,b=y", -1)
}

func TestPoliciesThatTheBackendCannotKeep(t *testing.T) {
	h := setup(t, policyRules, withPolicies, func(c *Config) { delete(c.Caps.Algorithms, limit.SlidingLog) })
	h.put(map[string]policies.Figures{"user:a": per(limit.SlidingLog, 100, 60)})
	h.left("user=a", 4)
	if !strings.Contains(h.log.String(), "the policy cannot be used") {
		t.Errorf("the log says %s", h.log)
	}
}

// TestOneSnapshotDecidesASlice: while policies change without pause, all descriptors of all calls
// that are decided together have policies of the same moment.
func TestOneSnapshotDecidesASlice(t *testing.T) {
	in := new(policies.Set)
	h := setup(t, "domain: d\ndescriptors:\n- {key: user, policy: 'user:{user}', rate_limit: {unit: second, "+
		"requests_per_unit: 5}}\n",
		func(c *Config) { c.Policies = in })
	const users, calls = 16, 4
	var snapshots []*policies.Snapshot
	for _, capacity := range []int64{1 << 30, 1 << 31} {
		var b policies.Builder
		for i := range users {
			b.Add(fmt.Sprint("user:", i), per(limit.FixedWindow, capacity, 3600))
		}
		snapshots = append(snapshots, b.Snapshot())
	}
	in.Install(snapshots[0], time.Now())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				in.Install(snapshots[i%2], time.Now())
			}
		}
	}()
	defer func() {
		close(stop)
		<-stopped
	}()
	var reqs []*Request
	var resps []*Response
	for range calls {
		r := &Request{Domain: "d"}
		for i := range users {
			r.Descriptors = append(r.Descriptors, Descriptor{Entries: []descriptors.Entry{{Key: "user", Value: fmt.Sprint(i)}}})
		}
		reqs, resps = append(reqs, r), append(resps, new(Response))
	}
	seen := map[int64]int{}
	for deadline := time.Now().Add(20 * time.Second); (len(seen) < 2 || seen[1<<30]+seen[1<<31] < 1000) &&
		time.Now().Before(deadline); {
		h.Decide(t.Context(), reqs, resps)
		first := resps[0].Statuses[0].limit.Limit.Max()
		for i, resp := range resps {
			for j := range resp.Statuses {
				if most := resp.Statuses[j].limit.Limit.Max(); most != first {
					t.Fatalf("descriptor %d of call %d is decided by a policy of %d, the first one by one of %d", j, i, most, first)
				}
			}
		}
		seen[first]++
	}
	if len(seen) != 2 {
		t.Errorf("decided by %v only", seen)
	}
}

// TestHostileValuesFindNoOtherPolicy: no value makes the key of another rule, of all, or of two
// values.
func TestHostileValuesFindNoOtherPolicy(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	h.put(map[string]policies.Figures{"user:vip": per(limit.SlidingWindow, 1000, 60),
		"b:vip|a:vip": per(limit.SlidingWindow, 1000, 60)})
	for _, value := range []string{"", "VIP", "vip ", "%76ip", "vip|a:vip", "..%2fvip", "*", "vip\x00",
		strings.Repeat("vip", 100_000)} {
		r := h.ask(Descriptor{Entries: []descriptors.Entry{{Key: "user", Value: value}}})
		h.want(r, "OK: ok/4")
		r = h.ask(Descriptor{Entries: []descriptors.Entry{{Key: "a", Value: "x"}, {Key: "b", Value: value + "|a:vip"}}})
		h.want(r, "OK: ok/4")
	}
}

// TestPolicyViewsAreBounded: many different policies leave no more than the bound behind, and each
// decides by its own figures.
func TestPolicyViewsAreBounded(t *testing.T) {
	h := setup(t, policyRules, withPolicies)
	all := map[string]policies.Figures{}
	n := 3 * maxPolicyViews * 16
	for i := range n {
		all[fmt.Sprintf("user:%d", i)] = per(limit.SlidingWindow, int64(i+1), 60)
	}
	h.put(all)
	for i := range n {
		h.left(fmt.Sprintf("user=%d", i), int64(i))
	}
	kept := 0
	for i := range h.rules.Load().derived.shards {
		kept += len(h.rules.Load().derived.shards[i].views)
	}
	if kept == 0 || kept > maxPolicyViews*16 {
		t.Errorf("%d views are kept", kept)
	}
}

func TestPoliciesDoNotAllocate(t *testing.T) {
	s := policyService(t, policyRules)
	views, in := s.rules.Load().views[0].policies, s.conf.Policies.Snapshot()
	for _, user := range []string{"vip", "other"} {
		entries := []descriptors.Entry{{Key: "user", Value: user}}
		if n := testing.AllocsPerRun(200, func() { views.view(in, entries) }); n != 0 {
			t.Errorf("%s: %v allocations", user, n)
		}
	}
}

// encodedRequest is Envoy's message for descriptors of domain d.
func encodedRequest(t testing.TB, entries ...string) []byte {
	t.Helper()
	encoded, err := proto.Marshal(protoRequest("d", entries...))
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// policyService has a policy for the user vip.
func policyService(t testing.TB, rules string) *Service {
	t.Helper()
	set, problems := rulefile.Load([]rulefile.Source{{Name: "bench", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	be, in := memory.New(memory.Config{}), new(policies.Set)
	in.Install(in.Snapshot().With([]policies.Change{{Key: "user:vip", Figures: per(limit.SlidingWindow, 1<<30, 3600)}}),
		time.Now())
	s, err := New(Config{
		Backend: be, Caps: memory.Caps(), Local: be, Log: slog.New(slog.DiscardHandler), Encoder: Wire.Encoder, Policies: in,
		Now: func() limit.Instant { return limit.InstantOf(time.Now()) },
	}, set)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkPolicies: a request by a rule without policies, by one with a policy, and by one without
// such a policy.
func BenchmarkPolicies(b *testing.B) {
	s := policyService(b, strings.ReplaceAll(policyRules, "5", "4000000000"))
	for _, entry := range []string{"plain=vip", "user=vip", "user=other"} {
		b.Run(entry, func(b *testing.B) {
			encoded := encodedRequest(b, entry)
			var req Request
			var resp Response
			reqs, resps := []*Request{&req}, []*Response{&resp}
			b.ReportAllocs()
			for b.Loop() {
				if err := Wire.Decode(&req, encoded); err != nil {
					b.Fatal(err)
				}
				s.Decide(context.Background(), reqs, resps)
			}
			if resp.OverLimit || resp.Statuses[0].limit == nil {
				b.Fatalf("%+v", resp)
			}
		})
	}
}
