package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// The reservation table measures what a request costs the store whose cost is known afterwards:
// where it asks and reports its cost, and where it reserves and settles, beside so many open
// reservations of the same key.
func (b *bench) reservationTable(ctx context.Context) error {
	fmt.Printf("\nreservations: CPU µs per request, which asks and reports its cost, or reserves and settles, "+
		"in slices of %d, "+
		"beside open reservations of the same key\n\n", leaseSlice)
	fmt.Printf("%-10s %10s %9s %9s %9s %9s %9s %9s\n", "backend", "open", "report", "+ Redis", "settle",
		"+ Redis", "oldest",
		"+ Redis")
	err := b.eachLeaseStore(ctx, func(s *leaseStore) error {
		for _, open := range []int{10, 1_000, s.leasesAtOnce} {
			if err := s.budget(ctx, open); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.budgetCalls(ctx)
}

// The calls by which the cost of a request becomes known.
type budgetWay struct {
	name string
	rule string // in YAML
	ask  func(user int) *rls.RateLimitRequest
	end  func(user int, asked *rls.RateLimitResponse) *rls.RateLimitRequest
}

const (
	budgetCost     = 50 // of a request
	budgetEstimate = 100
)

var budgetWays = []budgetWay{
	{"ask and report", roomyBudget, asksWith(wrapperspb.UInt64(0)), reports},
	{"reserve and settle", roomyBudget + ", reserve: {amount: estimate, default: 16384}", estimates, settles},
	{"reserve and report", roomyBudget + ", reserve: {amount: 100, match: oldest}", asksWith(wrapperspb.UInt64(0)),
		reports},
}

const roomyBudget = "overflow: debt, limits: [{algorithm: fixed_window, limit: 1000000000000, window: 1h}]"

func budgetCases() (list []benchCase) {
	for _, w := range budgetWays {
		for _, store := range []string{"memory", "redis"} {
			list = append(list, benchCase{name: store + ", " + w.name, redis: store == "redis", descriptors: 1, limit: w.rule})
		}
	}
	return list
}

func userEntry(user int) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k0", Value: clientName(user)}}}
}

// asksWith returns the call that names a user and hits.
func asksWith(hits *wrapperspb.UInt64Value) func(int) *rls.RateLimitRequest {
	return func(user int) *rls.RateLimitRequest {
		d := userEntry(user)
		d.HitsAddend = hits
		return &rls.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{d}}
	}
}

func reports(user int, _ *rls.RateLimitResponse) *rls.RateLimitRequest {
	return asksWith(wrapperspb.UInt64(budgetCost))(user)
}

func opOf(op, token string, hits *wrapperspb.UInt64Value) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{HitsAddend: hits, Entries: []*common.RateLimitDescriptor_Entry{
		{Key: ratelimit.OpKey, Value: op}}}
	if token != "" {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: ratelimit.LeaseEntry, Value: token})
	}
	return d
}

// estimates and settles make the calls of Envoy with the configuration that `headgate envoy` prints.
func estimates(user int) *rls.RateLimitRequest {
	r := asksWith(nil)(user)
	r.Descriptors = append(r.Descriptors, opOf("estimate", "", wrapperspb.UInt64(budgetEstimate)))
	return r
}

func settles(_ int, asked *rls.RateLimitResponse) *rls.RateLimitRequest {
	token := asked.DynamicMetadata.GetFields()[ratelimit.DefaultLeaseKey].GetStringValue()
	return &rls.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{
		opOf("settle", token, wrapperspb.UInt64(budgetCost)), opOf("release", token, nil),
		opOf("outcome", token, wrapperspb.UInt64(200))}}
}

// budgetCalls measures requests as Envoy makes them: two calls over connections.
func (b *bench) budgetCalls(ctx context.Context) error {
	fmt.Printf("\n%d requests in flight on %d connections, %d keys, two calls each: CPU µs per request\n\n", inFlight,
		connections, busyKeys)
	fmt.Printf("%-28s %9s %9s %9s %9s\n", "case", "headgate", "+ Redis", "sum", "× report")
	report := map[bool]float64{}
	for i, c := range budgetCases() {
		if c.redis && b.redis == nil {
			continue
		}
		r, err := b.budgetResult(ctx, c, budgetWays[i/2])
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		sum := r.cpu(0) + r.cpu(1)
		if i < 2 {
			report[c.redis] = sum
		}
		fmt.Printf("%-28s %9.1f %9.1f %9.1f %9.2f\n", c.name, r.cpu(0), r.cpu(1), sum, sum/report[c.redis])
	}
	return nil
}

func (b *bench) budgetResult(ctx context.Context, c benchCase, w budgetWay) (result, error) {
	t, err := b.start(ctx, c)
	if err != nil {
		return result{}, err
	}
	defer t.close()
	request := func(caller int, start time.Time) error {
		user := int(t.load.next.Add(1) % busyKeys)
		asked, err := t.load.send(ctx, caller, start, w.ask(user))
		if err == nil {
			_, err = t.load.send(ctx, caller, start, w.end(user, asked))
		}
		return err
	}
	if _, err := loop(inFlight, after(b.warmUp), request); err != nil {
		return result{}, err
	}
	return measureCPU(t.pids, func() ([]time.Duration, error) { return loop(inFlight, after(b.length), request) })
}

// send makes a call that must be admitted.
func (l *load) send(ctx context.Context, caller int, start time.Time, req *rls.RateLimitRequest) (
	*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithDeadline(ctx, start.Add(deadline))
	defer cancel()
	body, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	var answer []byte
	if err := l.conns[caller%connections].Invoke(ctx, rls.RateLimitService_ShouldRateLimit_FullMethodName, &body,
		&answer); err != nil {
		return nil, err
	}
	resp := new(rls.RateLimitResponse)
	if err := proto.Unmarshal(answer, resp); err != nil {
		return nil, err
	}
	if resp.OverallCode != rls.RateLimitResponse_OK {
		return nil, fmt.Errorf("the answer is %v", resp.OverallCode)
	}
	return resp, nil
}

// budget measures requests beside open reservations.
func (s *leaseStore) budget(ctx context.Context, open int) error {
	const units = 100
	l := limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: limit.MaxUnits, Window: time.Hour,
		Overflow: limit.Debt})
	life := limit.MustNew(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight, Window: time.Hour})
	group := "budget beside " + strconv.Itoa(open)
	budget := limit.Op{Key: limit.Key{Group: group, Limit: "f"}, Limit: l.Strict(), Cost: units}
	lease := limit.Op{Key: limit.Key{Group: group, Limit: limit.ReservationPart}, Limit: life, Cost: 1, Shadow: true}
	reserve := func(holder string) func(i int) []limit.Op {
		return func(i int) []limit.Op {
			lease := lease
			lease.Holder = limit.WithAmount(holder+strconv.Itoa(i), units)
			return []limit.Op{budget, lease}
		}
	}
	settle := func(holder func(i int) string) func(i int) []limit.Op {
		return func(i int) []limit.Op {
			end, correct := lease, budget
			end.Cost, end.Holder, end.Ending = -1, holder(i), limit.EndKnown
			correct.Limit, correct.Cost, correct.AsOf = l, units/2, limit.AsLeased
			return []limit.Op{end, correct}
		}
	}
	hits := func(n int64, of *limit.Limit) func(int) []limit.Op {
		return func(int) []limit.Op {
			op := budget
			op.Cost, op.Limit, op.Each = n, of, n > 0
			return []limit.Op{op}
		}
	}
	if _, err := s.doAll(ctx, reserve("other"), open); err != nil {
		return err
	}
	fmt.Printf("%-10s %10d", s.name, open)
	for _, row := range [][2]func(int) []limit.Op{
		{hits(0, l), hits(units/2, l)},
		{reserve("mine"), settle(func(i int) string { return limit.WithAmount("mine"+strconv.Itoa(i), units) })},
		{reserve("next"), settle(func(int) string { return "" })},
	} {
		var cpu [2]time.Duration
		for _, ops := range row {
			times, err := s.measureAll(ctx, ops)
			if err != nil {
				return err
			}
			for i, d := range times {
				cpu[i] += d
			}
		}
		for i := range cpu {
			if i < len(s.pids) {
				fmt.Printf(" %9.1f", float64(cpu[i].Nanoseconds())/1000/float64(leaseSlice*s.leaseTakes))
			} else {
				fmt.Printf(" %9s", "")
			}
		}
	}
	fmt.Println()
	return nil
}
