package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/policies"
	"github.com/headgate-rls/headgate/policies/sqlstore"
	"github.com/headgate-rls/headgate/policies/table"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

// What every change of the test changes: a limit per minute becomes one per hour, with another
// capacity. Nobody is refused.
var (
	oldPolicy = policies.Figures{Algorithm: limit.FixedWindow, Capacity: 1_000_000, Window: 60 * policies.One}
	newPolicy = policies.Figures{Algorithm: limit.FixedWindow, Capacity: 2_000_000, Window: 3600 * policies.One}
)

// A changing is what a test knows of changes that are made while decisions are.
type changing struct {
	t       *testing.T
	clients [][]rls.RateLimitServiceClient // of each service
	changes []change

	decisions, byOld, byNew atomic.Int64
	latest                  atomic.Int64 // ns after the commit that a call was sent which the old policy decided
}

// A change makes new policies of both users of a pair at once.
type change struct {
	begun, committed atomic.Int64   // ns since the epoch; 0: not yet
	seen             []atomic.Int64 // when each service first decided by the new policy
}

func user(pair int, of string) string { return fmt.Sprintf("%d-%s", pair, of) }

func edits(pair int, f policies.Figures) (list []table.Edit) {
	for _, of := range []string{"a", "b"} {
		list = append(list, table.Edit{Key: "user:" + user(pair, of), Figures: f})
	}
	return list
}

// TestPoliciesChangeUnderLoad makes 100 changes in parallel while three services decide, with
// counters in Redis and policies in PostgreSQL. Each call asks about two users whose policies are
// changed by one edit. It is decided by the old policies or by the new ones, never by one of each
// or by a part of both; by the new ones from 250 ms after the commit, and never by the old ones
// after that on the same service. The short form has fewer decisions, and allows for the pauses of
// a busy machine, which it measures.
func TestPoliciesChangeUnderLoad(t *testing.T) {
	redis := testenv.StartRedis(t)
	url := testenv.SharedDatabase(t, testenv.Postgres).CreateDatabase("policies")
	rules := writeFile(t, "rules.yaml", "domain: e2e\ndescriptors:\n- {key: user, policy: 'user:{user}', rate_limit: "+
		"{unit: second, requests_per_unit: 5}}\n")
	stores := openPolicyStores(t, url, 10)
	const pairs = 100
	var before []table.Edit
	for i := range pairs {
		before = append(before, edits(i, oldPolicy)...)
	}
	if _, err := stores[0].Apply(t.Context(), before, "test", 0, false); err != nil {
		t.Fatal(err)
	}
	c := &changing{t: t, changes: make([]change, pairs)}
	for range 3 {
		s := startService(t, "--rules", rules, "--backend", redis.URL(), "--policies", url)
		c.clients = append(c.clients, dialTimes(t, s.GRPC, 4))
	}
	for i := range c.changes {
		c.changes[i].seen = make([]atomic.Int64, len(c.clients))
	}
	rate := random.Times(1500, 10_000)
	pauses := watchPauses(t, stores[1])
	stop := c.load(rate)
	began, warm := time.Now(), c.decisions.Load()
	time.Sleep(time.Second) // of the old policies alone
	c.changeAll(stores)
	time.Sleep(time.Second) // and of the new ones
	reached := float64(c.decisions.Load()-warm) / time.Since(began).Seconds()
	worst := pauses()
	stop()
	for i := range c.changes {
		for s := range c.clients {
			if !c.ask(s, i, 0) {
				t.Errorf("service %d decides by the old policies of pair %d at the end", s, i)
			}
		}
	}
	latest := time.Duration(c.latest.Load())
	t.Logf("%.0f decisions/s of %d; %d by old policies, %d by new ones; the latest by old ones was asked for %v after "+
		"the commit; the machine's longest pause was %v",
		reached, rate, c.byOld.Load(), c.byNew.Load(), latest, worst)
	if c.byOld.Load() == 0 || c.byNew.Load() == 0 {
		t.Error("decisions by one kind of policies only")
	}
	if allowed := table.Settle + time.Duration(random.Times(2, 1))*worst; latest > allowed {
		t.Errorf("a call that was sent %v after the commit was decided by the old policies; allowed are %v", latest, allowed)
	}
}

func openPolicyStores(t *testing.T, url string, n int) (list []*sqlstore.Store) {
	t.Helper()
	for range n {
		s, err := sqlstore.Open(sqlstore.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		list = append(list, s)
	}
	if _, err := list[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return list
}

func dialTimes(t *testing.T, addr string, n int) (list []rls.RateLimitServiceClient) {
	t.Helper()
	for range n {
		conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		list = append(list, rls.NewRateLimitServiceClient(conn))
	}
	return list
}

// watchPauses does what a follower does, every 50 ms, until it is asked how much longer than that
// it has taken at worst.
func watchPauses(t *testing.T, s *sqlstore.Store) (worst func() time.Duration) {
	stop, ended := make(chan struct{}), make(chan struct{})
	var longest time.Duration
	go func() {
		defer close(ended)
		for {
			began := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if _, err := s.State(context.Background()); err != nil {
				t.Error(err)
			}
			longest = max(longest, time.Since(began)-50*time.Millisecond)
		}
	}()
	return func() time.Duration {
		close(stop)
		<-ended
		return longest
	}
}

// load asks all services, at a rate that they share, until it is stopped.
func (c *changing) load(rate int) (stop func()) {
	const workers = 16 // of each service
	pause := time.Second * time.Duration(workers*len(c.clients)) / time.Duration(rate)
	var stopped atomic.Bool
	var running sync.WaitGroup
	for s := range c.clients {
		for w := range workers {
			running.Go(func() {
				next := time.Now().Add(rand.N(pause))
				for !stopped.Load() {
					time.Sleep(time.Until(next))
					next = next.Add(pause)
					c.ask(s, rand.IntN(len(c.changes)), w)
				}
			})
		}
	}
	return func() {
		stopped.Store(true)
		running.Wait()
	}
}

// ask asks a service about both users of a pair, checks the answer, and reports whether the new
// policies decided.
func (c *changing) ask(service, pair, worker int) (byNew bool) {
	one := func(of string) *common.RateLimitDescriptor {
		return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user(pair, of)}}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	sent, of := time.Now(), &c.changes[pair]
	client := c.clients[service][worker%len(c.clients[service])]
	resp, err := client.ShouldRateLimit(ctx,
		&rls.RateLimitRequest{Domain: "e2e", Descriptors: []*common.RateLimitDescriptor{one("a"), one("b")}})
	if err != nil || len(resp.Statuses) != 2 || resp.OverallCode != rls.RateLimitResponse_OK {
		c.t.Errorf("pair %d: %v, %v", pair, resp, err)
		return false
	}
	c.decisions.Add(1)
	first, second := decidedBy(resp.Statuses[0]), decidedBy(resp.Statuses[1])
	switch {
	case first == nil || first != second:
		c.t.Errorf("pair %d: a mixture of policies decided: %v", pair, resp)
	case first == &newPolicy:
		c.byNew.Add(1)
		of.seen[service].CompareAndSwap(0, time.Now().UnixNano())
		if of.begun.Load() == 0 {
			c.t.Errorf("pair %d: the new policies decide before they are there", pair)
		}
		return true
	default:
		c.byOld.Add(1)
		c.late(service, pair, sent)
	}
	return false
}

// late notes a call that the old policies have decided.
func (c *changing) late(service, pair int, sent time.Time) {
	of := &c.changes[pair]
	if seen := of.seen[service].Load(); seen != 0 && sent.UnixNano() > seen {
		c.t.Errorf("pair %d: service %d decides by the old policies after it did by the new ones", pair, service)
	}
	if committed := of.committed.Load(); committed != 0 {
		for after := sent.UnixNano() - committed; ; {
			if latest := c.latest.Load(); after <= latest || c.latest.CompareAndSwap(latest, after) {
				return
			}
		}
	}
}

// decidedBy returns the policy whose limit a status has, all of it; nil if it has no policy's.
func decidedBy(s *rls.RateLimitResponse_DescriptorStatus) *policies.Figures {
	for _, p := range []struct {
		figures *policies.Figures
		unit    rls.RateLimitResponse_RateLimit_Unit
		window  time.Duration
	}{
		{&oldPolicy, rls.RateLimitResponse_RateLimit_MINUTE, time.Minute},
		{&newPolicy, rls.RateLimitResponse_RateLimit_HOUR, time.Hour},
	} {
		capacity := uint32(p.figures.Capacity)
		// Few units are used, so what is left says by which capacity it was counted.
		if l := s.CurrentLimit; l.GetRequestsPerUnit() == capacity && l.GetUnit() == p.unit &&
			s.LimitRemaining < capacity && s.LimitRemaining > capacity-500_000 && s.DurationUntilReset.AsDuration() <= p.window {
			return p.figures
		}
	}
	return nil
}

// timed notes when a change is made.
type timed struct {
	*sqlstore.Store
	of *change
}

func (s timed) Apply(ctx context.Context, list []table.Edit, by string, us int64,
	dryRun bool) ([]table.Outcome, error) {
	if !dryRun {
		s.of.begun.Store(time.Now().UnixNano())
	}
	done, err := s.Store.Apply(ctx, list, by, us, dryRun)
	if !dryRun {
		s.of.committed.Store(time.Now().UnixNano())
	}
	return done, err
}

// changeAll makes all changes in parallel, and returns when each editor says that its own is in
// force.
func (c *changing) changeAll(stores []*sqlstore.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for i := range c.changes {
		running.Go(func() {
			editor := table.NewEditor(timed{stores[i%len(stores)], &c.changes[i]}, nil)
			if _, err := editor.Apply(ctx, edits(i, newPolicy), fmt.Sprint("editor ", i), false); err != nil {
				c.t.Error(err)
			}
		})
	}
	running.Wait()
}
