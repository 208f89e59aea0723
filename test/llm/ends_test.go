package llm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/test/llmtest"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// manyUnits is a limit that calls do not reach, and no more than an answer can say is left.
const manyUnits = 4_000_000_000

var many = fmt.Sprintf("{name: hour, algorithm: fixed_window, limit: %d, window: 1h}", manyUnits)

// TestEndsAreCountedOnce: however ends of calls arrive, twice, late, at another replica or never, and though a replica
// is killed, the counter is what calls have used and what lost ones have reserved. No end counts twice.
func TestEndsAreCountedOnce(t *testing.T) {
	t.Parallel()
	for _, store := range stores[1:] {
		t.Run(store, func(t *testing.T) {
			insideHour()
			p := place{envoys[0], store, 3}
			l := p.start(t, llmtest.Setup{Rules: rules(estimated, many)})
			s := newSender(t, l)
			calls := random.Times(3_000, 100_000)
			s.play(t, calls, l.Headgates, l.Headgates[2].Kill)
			s.wantCounted(t, l, 0)
			t.Logf("%d calls used %d, lost ones reserved %d; %d calls have failed", calls, s.plain.used, s.plain.lost, s.failed)
			if s.failed > 100 {
				t.Errorf("%d of %d calls failed", s.failed, calls)
			}
		})
	}
}

// TestFailoverOfRedis: a failover loses what the new master has not got, and no more.
func TestFailoverOfRedis(t *testing.T) {
	if !random.Long() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	insideHour()
	redis := testenv.StartRedisSentinel(t)
	l := place{envoys[0], "memory", 2}.start(t, llmtest.Setup{Rules: rules(estimated, many), Serve: []string{"--backend",
		"redis+sentinel://" + strings.Join(redis.SentinelAddrs, ",") + "/" + url.PathEscape(redis.MasterName)}})
	s := newSender(t, l)
	s.play(t, 100_000, l.Headgates, func() {
		old := redis.Master()
		old.Kill()
		redis.WaitNewMaster(old)
	})
	s.wantCounted(t, l, (s.plain.used+s.plain.lost)/100)
	t.Logf("calls used %d, lost ones reserved %d; %d calls have failed", s.plain.used, s.plain.lost, s.failed)
}

// smallUnits is the budget of the provider that calls are routed to first.
const smallUnits = 5_000_000

// TestEndsOfRoutedCallsAreCountedOnce: the same for calls that headgate routes, whatever comes of ends and replicas.
// The provider that comes first is used up and not spent beyond what its calls in flight use beyond their
// reservations, and the counter of the other one is exact.
func TestEndsOfRoutedCallsAreCountedOnce(t *testing.T) {
	t.Parallel()
	for _, store := range stores[1:] {
		t.Run(store, func(t *testing.T) {
			insideHour()
			first := strings.Replace(many, fmt.Sprint(manyUnits), fmt.Sprint(smallUnits), 1)
			text := routing(estimated, first)
			at := strings.LastIndex(text, first)
			text = text[:at] + many + text[at+len(first):]
			p := place{envoys[0], store, 3}
			l := p.start(t, llmtest.Setup{Rules: text, Providers: providers})
			s := newSender(t, l)
			s.routed = map[string]*spending{providers[0]: {}, providers[1]: {}}
			calls := random.Times(3_000, 100_000)
			s.play(t, calls, l.Headgates, l.Headgates[2].Kill)
			s.wantCountedOf(t, l, "provider", providers[1], s.routed[providers[1]], 0)
			one := s.routed[providers[0]]
			t.Logf("%s: %+v, %s: %+v; %d calls have failed", providers[0], *one, providers[1], *s.routed[providers[1]], s.failed)
			// Eight senders, and ends that come a second late: each may use 16,000 more than it has reserved.
			inFlight := int64(8 + calls/100)
			known := one.used + one.lost
			if known+one.unknown < smallUnits*98/100 || known > smallUnits+inFlight*16_000 {
				t.Errorf("%s has spent %+v of %d", providers[0], *one, smallUnits)
			}
			if s.failed > 100 {
				t.Errorf("%d of %d calls failed", s.failed, calls)
			}
		})
	}
}

// wantCounted waits until the counter has all ends, less what a store may have lost.
func (s *sender) wantCounted(t *testing.T, l *llmtest.Lab, mayLack int64) {
	t.Helper()
	s.wantCountedOf(t, l, "x-user", "u", &s.plain, mayLack)
}

func (s *sender) wantCountedOf(t *testing.T, l *llmtest.Lab, key, value string, want *spending, mayLack int64) {
	t.Helper()
	s.late.Wait()
	testenv.Eventually(t, 20*time.Second, "have all ends counted", func() string {
		used := manyUnits - leftOf(t, l, key, value)
		if least := want.used + want.lost; used < least-mayLack || used > least+want.unknown+mayLack {
			return fmt.Sprintf("%d are used, want %+v", used, *want)
		}
		return ""
	})
}

// A spending is what calls have spent, in tokens.
type spending struct {
	used, lost int64
	unknown    int64 // of calls that failed, which may be reserved
}

// A sender plays calls as Envoys do, and records what each call spent.
type sender struct {
	clients map[*testenv.Headgate]rls.RateLimitServiceClient
	late    sync.WaitGroup

	mu     sync.Mutex
	plain  spending
	routed map[string]*spending // of the providers that calls are routed to; nil: they are not
	failed int
}

func newSender(t *testing.T, l *llmtest.Lab) *sender {
	s := &sender{clients: map[*testenv.Headgate]rls.RateLimitServiceClient{}}
	for _, h := range l.Headgates {
		conn, err := grpc.NewClient(h.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		s.clients[h] = rls.NewRateLimitServiceClient(conn)
	}
	return s
}

// play plays calls by eight senders at once, to headgates by chance; something happens in the middle. After a failure a
// sender waits, and turns from a headgate that has ended.
func (s *sender) play(t *testing.T, calls int, to []*testenv.Headgate, middle func()) {
	t.Helper()
	var all sync.WaitGroup
	var played atomic.Int64
	for i := range uint64(8) {
		all.Go(func() {
			r, to := random.Rand(t, i), to
			for range calls / 8 {
				at := r.IntN(len(to))
				if !s.call(t, r, to, at) {
					time.Sleep(100 * time.Millisecond)
					if to[at].Exited() {
						to = slices.Delete(slices.Clone(to), at, at+1) // ends of calls have the old one
					}
				}
				if played.Add(1) == int64(calls/2) {
					all.Go(middle)
				}
			}
		})
	}
	all.Wait()
}

// call is one call: 1 % of ends are lost, 1 % come twice, 1 % late. An end that a headgate does not take goes to
// another one, as Envoy does it.
func (s *sender) call(t *testing.T, r *rand.Rand, to []*testenv.Headgate, at int) (answered bool) {
	some := func() int { return r.IntN(len(to)) }
	reserved, used := 1_000+r.Int64N(10_000), 1_000+r.Int64N(16_000)
	provider, token, err := s.ask(t.Context(), s.clients[to[at]], reserved)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.failed++; s.failed == 1 {
			t.Log(err)
		}
		s.plain.unknown += reserved
		for _, spent := range s.routed {
			spent.unknown += reserved
		}
		return false
	}
	spent := &s.plain
	if s.routed != nil {
		spent = s.routed[provider]
	}
	end := func(at int) {
		err := report(t.Context(), s.clients[to[at]], token, used)
		for i := 0; err != nil && i < len(to); i++ {
			err = report(t.Context(), s.clients[to[(at+i)%len(to)]], token, used)
		}
		if err != nil {
			t.Error(err)
		}
	}
	first, second := some(), some()
	switch n := r.IntN(100); n {
	case 0:
		spent.lost += reserved
		return true
	case 1:
		s.late.Go(func() { end(first) })
		s.late.Go(func() { end(second) })
	case 2:
		s.late.Go(func() {
			time.Sleep(time.Second)
			end(first)
		})
	default:
		s.mu.Unlock()
		end(first)
		s.mu.Lock()
	}
	spent.used += used
	return true
}

// entry is a descriptor, with hits if they are not negative.
func entry(hits int64, pairs ...string) *core.RateLimitDescriptor {
	d := &core.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &core.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	if hits >= 0 {
		d.HitsAddend = wrapperspb.UInt64(uint64(hits))
	}
	return d
}

const callLimit = 20 * time.Second

// ask reserves, and returns the token and the provider that the call is routed to, if it is.
func (s *sender) ask(ctx context.Context, c rls.RateLimitServiceClient, n int64) (provider, token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	list := []*core.RateLimitDescriptor{entry(n, "headgate.op", "estimate")}
	for name := range s.routed {
		list = append(list, entry(-1, "provider", name))
	}
	if s.routed == nil {
		list = append(list, entry(-1, "x-user", "u"))
	}
	a, err := c.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "llm", Descriptors: list})
	if err != nil {
		return "", "", err
	}
	told := a.GetDynamicMetadata().GetFields()
	if token = told["lease"].GetStringValue(); token == "" {
		return "", "", fmt.Errorf("the answer has no token: %v", a)
	}
	return told["choose"].GetStructValue().GetFields()["model"].GetStringValue(), token, nil
}

// report says that a call has ended, as Envoy does.
func report(ctx context.Context, c rls.RateLimitServiceClient, token string, used int64) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := c.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "llm", Descriptors: []*core.RateLimitDescriptor{
		entry(used, "headgate.op", "settle", "lease", token), entry(-1, "headgate.op", "release", "lease", token),
		entry(200, "headgate.op", "outcome", "lease", token)}})
	return err
}
