package compat

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A pair is the reference and headgate as its canary: both have one environment and one Redis.
type pair struct {
	reference, headgate *client
	redis               *redis.Client
}

// A client asks one of them, over one connection.
type client struct {
	rls.RateLimitServiceClient
	name string
	*service
}

const keyPrefix = "canary:"

// startPair starts both, where the reference can be had.
func startPair(t *testing.T, rules string) *pair {
	t.Helper()
	reference := testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
	server := testenv.StartRedis(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), rules)
	env := map[string]string{
		"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
		"RUNTIME_IGNOREDOTFILES": "true",
		"REDIS_SOCKET_TYPE":      "tcp", "REDIS_URL": server.Addr, "REDIS_TIMEOUT": "10s", "CACHE_KEY_PREFIX": keyPrefix,
		"EXPIRATION_JITTER_MAX_SECONDS": "7", "USE_STATSD": "false", "LOG_LEVEL": "error",
		// the reference reads none of these
		"REDIS_LAYOUT": "envoy", "HEADGATE_DRAIN_DELAY": "0s", "HEADGATE_BACKEND_TIMEOUT": "10s",
	}
	connect := func(name string, s *service) *client {
		conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(s.creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &client{rls.NewRateLimitServiceClient(conn), name, s}
	}
	return &pair{connect("the reference", startProgram(t, reference, env)), connect("headgate", start(t, env)),
		server.Client()}
}

func (c *client) ask(t *testing.T, req *rls.RateLimitRequest) *rls.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	resp, err := c.ShouldRateLimit(ctx, req)
	if err != nil {
		t.Fatalf("%s, asked %v: %v", c.name, req, err)
	}
	return resp
}

func request(hits uint32, list ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d/x", HitsAddend: hits, Descriptors: list}
}

const canaryRules = `domain: d/x
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 1000}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: day, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 1000}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 1000}}
  - {key: year, rate_limit: {unit: year, requests_per_unit: 1000}}
  - {key: most, rate_limit: {unit: day, requests_per_unit: 4294967295}}
  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: exempt}
  - key: exact
    value: one
    rate_limit: {unit: hour, requests_per_unit: 5}
    descriptors:
      - key: inner
        rate_limit: {unit: hour, requests_per_unit: 5}
        descriptors:
          - {key: inmost, value: "x*", rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: wild, value: "foo*", rate_limit: {unit: day, requests_per_unit: 5}}
  - key: shared
    value: "foo*"
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 5}
    descriptors:
      - {key: below, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: measured, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: named, rate_limit: {unit: day, requests_per_unit: 5, name: n}}
  - {key: replacing, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: n}]}}
  - {key: "*_odd key:{}", value: "*_odd/value", rate_limit: {unit: day, requests_per_unit: 5}}
`

// zeroHits asks without taking.
func zeroHits(d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(0)
	return d
}

// withLimit has a request bring its own limit.
func withLimit(d *common.RateLimitDescriptor, n uint32, unit typev3.RateLimitUnit) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return d
}

// What one of them counts is under the keys, and lives as long, as what the other counts; and
// each goes on where the other was.
func TestCanaryKeys(t *testing.T) {
	t.Parallel()
	p := startPair(t, canaryRules)
	long := strings.Repeat("v", 700)
	for name, req := range map[string]*rls.RateLimitRequest{
		"a second": request(1, descriptor("second=a")), "a minute": request(1, descriptor("minute=b")),
		"an hour": request(1, descriptor("hour=b")),
		"a day":   request(1, descriptor("day=b")), "a week": request(1, descriptor("week=b")),
		"a month": request(1, descriptor("month=b")),
		"a year":  request(1, descriptor("year=b")), "the largest limit": request(1<<32-1, descriptor("most=a")),
		"several hits": request(4, descriptor("hour=a")), "no limit": request(1, descriptor("free=a"), descriptor("exempt=a"),
			descriptor("unknown=a")),
		"a limit of zero": request(3, descriptor("none=a")), "more hits than fit": request(9, descriptor("exact=one")),
		"nested":     request(1, descriptor("exact=one", "inner=two")),
		"three deep": request(1, descriptor("exact=one", "inner=two", "inmost=xyz")),
		"a wildcard": request(1, descriptor("wild=foobar")), "a wildcard's own text": request(1, descriptor("wild=foo*")),
		"share_threshold":       request(1, descriptor("shared=foobar")),
		"share_threshold above": request(1, descriptor("shared=foobar", "below=x")),
		"detailed_metric":       request(1, descriptor("detailed=x")),
		"value_to_metric":       request(1, descriptor("measured=x")),
		"shadow mode":           request(3, descriptor("shadow=x")),
		"a replaced limit":      request(1, descriptor("named=x"), descriptor("replacing=x")),
		"no value":              request(1, descriptor("day=")), "spaces": request(1, descriptor("day= a b ")),
		"underscores":  request(1, descriptor("day=_a__b_")),
		"beyond ASCII": request(1, descriptor("day=é\u0301日本")), "braces": request(1, descriptor("day={a}b")),
		"a lone brace": request(1, descriptor("day=}{")),
		"controls":     request(1, descriptor("day=a\r\n\x00\tb")), "patterns": request(1, descriptor("day=*?[a]\\%s%00")),
		"digits":       request(1, descriptor("day=1795327200")),
		"a long value": request(1, descriptor("day="+long)), "odd names": request(1, descriptor("*_odd key:{}=*_odd/value")),
		"several descriptors": request(2, descriptor("day=a"), descriptor("hour=a"),
			descriptor("exact=one", "inner=two")),
		"a descriptor twice":           request(2, descriptor("day=a"), descriptor("day=a")),
		"one of several refused":       request(3, descriptor("day=a"), descriptor("none=a"), descriptor("hour=b")),
		"a request's own limit":        request(1, withLimit(descriptor("any=thing"), 7, typev3.RateLimitUnit_HOUR)),
		"its own in a rule's place":    request(1, withLimit(descriptor("day=a"), 7, typev3.RateLimitUnit_DAY)),
		"its own where values share":   request(1, withLimit(descriptor("shared=foobar"), 7, typev3.RateLimitUnit_DAY)),
		"its own, with another window": request(1, withLimit(descriptor("day=a"), 7, typev3.RateLimitUnit_MINUTE)),
	} {
		t.Run(name, func(t *testing.T) {
			for try := 1; ; try++ {
				problem := p.compare(t, req)
				if problem == "" {
					return
				}
				if try == 5 { // else a window has ended meanwhile
					t.Fatal(problem)
				}
			}
		})
	}
}

// compare asks each alone, then one after the other, and says what differs.
func (p *pair) compare(t *testing.T, req *rls.RateLimitRequest) string {
	t.Helper()
	var alone [2]map[string]int64
	for i, c := range []*client{p.reference, p.headgate} {
		p.redis.FlushAll(t.Context())
		c.ask(t, req)
		counts, problem := p.counts(t)
		if problem != "" {
			return c.name + ": " + problem
		}
		alone[i] = counts
	}
	if !maps.Equal(alone[0], alone[1]) {
		return fmt.Sprintf("the reference counts %v, headgate %v", alone[0], alone[1])
	}
	for _, order := range [][]*client{{p.headgate, p.reference, p.headgate}, {p.reference, p.headgate, p.reference}} {
		p.redis.FlushAll(t.Context())
		var both, one []*rls.RateLimitResponse
		for _, c := range order {
			both = append(both, c.ask(t, req))
		}
		counts, _ := p.counts(t)
		for key, n := range alone[0] {
			if counts[key] != 3*n {
				return fmt.Sprintf("%q holds %d after both have counted three times %d", key, counts[key], n)
			}
		}
		p.redis.FlushAll(t.Context())
		for range order {
			one = append(one, p.reference.ask(t, req))
		}
		for i := range both {
			if got, want := answer(both[i]), answer(one[i]); got != want {
				return fmt.Sprintf("answer %d, by %s: %s; the reference alone: %s", i+1, order[i].name, got, want)
			}
		}
	}
	return ""
}

// answer is what a response says of counts.
func answer(r *rls.RateLimitResponse) string {
	s := r.OverallCode.String()
	for _, status := range r.Statuses {
		s += fmt.Sprintf(" %v with %d left", status.Code, status.LimitRemaining)
	}
	return s
}

// seconds are the windows of both, with the rules that have them.
var seconds = map[string]int64{"minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400, "month": 30 * 86400,
	"year": 365 * 86400}

// counts returns what is counted under which keys, and what is wrong with their lives: each
// lives for the length of a window, and up to the jitter longer.
func (p *pair) counts(t *testing.T) (counts map[string]int64, problem string) {
	t.Helper()
	counts = map[string]int64{}
	for it := p.redis.Scan(t.Context(), 0, "", 1000).Iterator(); it.Next(t.Context()); {
		key := it.Val()
		if strings.HasPrefix(key, keyPrefix+"headgate:") {
			continue // what replicas share beside counters
		}
		text := p.redis.Get(t.Context(), key).Val()
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Sprintf("%q holds %q", key, text)
		}
		counts[key] = n
		ttl := int64(p.redis.TTL(t.Context(), key).Val() / time.Second)
		lengths := append(slices.Collect(maps.Values(seconds)), 1)
		if !slices.ContainsFunc(lengths, func(n int64) bool { return ttl >= n-3 && ttl <= n+7 }) {
			problem = fmt.Sprintf("%q lives for %d s, which is no window", key, ttl)
		}
		for name, n := range seconds {
			if strings.HasPrefix(key, keyPrefix+"d/x_"+name+"_b_") && (ttl < n-3 || ttl > n+7) {
				problem = fmt.Sprintf("%q lives for %d s, want %d to %d", key, ttl, n, n+7)
			}
		}
	}
	return counts, problem
}

const loadRules = `domain: d/x
descriptors:
  - {key: second, rate_limit: {unit: second, requests_per_unit: 20}}
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 150}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 300}}
  - key: tree
    value: "a*"
    share_threshold: true
    rate_limit: {unit: day, requests_per_unit: 400}
    descriptors: [{key: leaf, rate_limit: {unit: week, requests_per_unit: 70}}]
`

// A counter is what admitted hits are summed under: a descriptor in one of its windows.
type counter struct {
	name   string
	window int64
}

// limits are those of the rules above.
var limits = map[string]struct{ most, seconds int64 }{
	"second=a": {20, 1}, "second=b": {20, 1}, "minute=a": {150, 60}, "hour=a": {300, 3600}, "hour=b": {300, 3600},
	"tree=a": {400, 86400}, "tree=a leaf=x": {70, 7 * 86400}, "tree=a leaf=y": {70, 7 * 86400},
}

// Clients ask both at random. Together they admit no more than a limit allows in each window,
// and all of it where single hits are asked for.
func TestCanaryUnderLoad(t *testing.T) {
	t.Parallel()
	p := startPair(t, loadRules)
	r := random.Rand(t, 1)
	names := slices.Sorted(maps.Keys(limits))
	var mu sync.Mutex
	admitted, by, asked := map[counter]int64{}, map[string]int64{}, map[string]int64{}
	var all sync.WaitGroup
	for range 12 {
		own := rand.New(rand.NewPCG(r.Uint64(), 1))
		all.Go(func() {
			for range random.Times(250, 5000) {
				c := p.reference
				if own.IntN(2) == 0 {
					c = p.headgate
				}
				list := []string{names[own.IntN(len(names))]}
				if own.IntN(3) == 0 {
					list = append(list, names[own.IntN(len(names))])
				}
				hits := uint32(1)
				if own.IntN(4) == 0 && list[0] != "hour=a" {
					hits += uint32(own.IntN(3))
				}
				req := request(hits)
				for _, name := range list {
					d := descriptor(strings.Fields(name)...)
					req.Descriptors = append(req.Descriptors, d)
				}
				sent := time.Now().Unix()
				resp, err := c.ShouldRateLimit(t.Context(), req)
				came := time.Now().Unix()
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
					return
				}
				mu.Lock()
				for i, name := range list {
					asked[name] += int64(hits)
					l := limits[name]
					if resp.Statuses[i].Code == rls.RateLimitResponse_OK && sent/l.seconds == came/l.seconds {
						admitted[counter{name, sent / l.seconds}] += int64(hits)
						by[c.name]++
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("asked for %v, admitted %v by %v", asked, admitted, by)
	windows := map[string]int{}
	for c, n := range admitted {
		windows[c.name]++
		if most := limits[c.name].most; n > most {
			t.Errorf("%s: %d admitted in one window, the limit is %d", c.name, n, most)
		}
	}
	for name := range limits {
		if asked[name] > 2*limits[name].most && limits[name].seconds > 1 && windows[name] == 0 {
			t.Errorf("%s: nothing was admitted", name)
		}
	}
	if by["the reference"] < 50 || by["headgate"] < 50 {
		t.Errorf("one of them admitted hardly anything: %v", by)
	}
	p.refusedByBoth(t)
}

// refusedByBoth: what one has used up, the other refuses; also once the other is gone.
func (p *pair) refusedByBoth(t *testing.T) {
	t.Helper()
	for i, order := range [][]*client{{p.headgate, p.reference}, {p.reference, p.headgate}} {
		req := request(300, descriptor("hour=exhausted"+strconv.Itoa(i)))
		if resp := order[0].ask(t, req); resp.OverallCode != rls.RateLimitResponse_OK {
			t.Errorf("%s: %v", order[0].name, resp)
		}
		req.HitsAddend = 1
		if resp := order[1].ask(t, req); resp.OverallCode != rls.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%s admits what %s has used up: %v", order[1].name, order[0].name, resp)
		}
	}
	p.headgate.Terminate()
	p.headgate.Wait(20 * time.Second)
	if resp := p.reference.ask(t, request(1, descriptor("hour=exhausted0"))); resp.OverallCode !=
		rls.RateLimitResponse_OVER_LIMIT {
		t.Errorf("without headgate the reference admits what headgate has used up: %v", resp)
	}
}

// Costs that are reported after the response count for both: what one was told of, the other
// refuses to those who ask with no hits.
func TestCanaryReports(t *testing.T) {
	t.Parallel()
	p := startPair(t, canaryRules)
	for i, order := range [][]*client{{p.headgate, p.reference}, {p.reference, p.headgate}} {
		peek, report := zeroHits(descriptor("exact=one", "inner="+strconv.Itoa(i))),
			descriptor("exact=one", "inner="+strconv.Itoa(i))
		for n, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OK,
			rls.RateLimitResponse_OVER_LIMIT, rls.RateLimitResponse_OVER_LIMIT} {
			if resp := order[1].ask(t, request(0, peek)); resp.OverallCode != want {
				t.Errorf("%s is asked after %d reports to %s: %v, want %v", order[1].name, n, order[0].name, resp.OverallCode, want)
			}
			order[0].ask(t, request(4, report)) // 4, then 8 of 5
		}
	}
}
