package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	replicas = 3
	domain   = "chaos"
	// inFlight is how many calls of a client are under way at most.
	inFlight = 128
)

// policies and the limits of a style make the rules: one for each pair.
func policies() []string { return []string{"allow", "deny", "local"} }

const (
	// free is the key of a rule that never refuses, so that its answers tell
	// what the backend says right now; no refusal of it is ever remembered.
	free       = "free"
	freeValues = 6 // more than one, to be on several nodes of a Cluster

	// minute is the key of one that never refuses either, whose answers tell
	// how long the clock's minute lasts yet.
	minute = "minute"

	// bucket is the key of a token bucket, which would be filled anew for a
	// clock that is ahead of the one it was last filled by.
	bucket      = "bucket"
	bucketBurst = 20
	bucketRate  = 2 // per second
)

// rules has windows of a year, so that hardly ever one ends during a test.
func (s *style) rules() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for _, p := range policies() {
		for _, n := range s.limits {
			fmt.Fprintf(&b, "- {key: %s_%d, on_backend_error: %s, rate_limit: {unit: year, requests_per_unit: %d}}\n", p, n, p,
				n)
		}
	}
	fmt.Fprintf(&b, "- {key: %s, on_backend_error: deny, rate_limit: {unit: year, requests_per_unit: 1000000000}}\n", free)
	fmt.Fprintf(&b, "- {key: %s, on_backend_error: deny, rate_limit: {unit: minute, requests_per_unit: 1000000000}}\n",
		minute)
	fmt.Fprintf(&b, "- {key: %s, on_backend_error: deny, limits: [{name: b, algorithm: token_bucket, rate: %d/s, "+
		"burst: %d}]}\n", bucket, bucketRate, bucketBurst)
	return b.String()
}

func newRequest(key, value string) *rls.RateLimitRequest {
	entry := &common.RateLimitDescriptor_Entry{Key: key, Value: value}
	return &rls.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{entry}},
	}}
}

// requests are what each client sends, in turn.
func (s *style) requests() []*rls.RateLimitRequest {
	list := []*rls.RateLimitRequest{newRequest(minute, "x"), newRequest(bucket, "x")}
	for _, p := range policies() {
		for _, n := range s.limits {
			list = append(list, newRequest(p+"_"+strconv.Itoa(n), "x"))
		}
	}
	for i := range freeValues {
		list = append(list, newRequest(free, strconv.Itoa(i)))
	}
	return list
}

// A call is what came of one.
type call struct {
	client   int // number of the replica, or idle
	key      string
	began    time.Time
	took     time.Duration
	admitted bool
	degraded string        // the policy that answered, if one did
	reset    time.Duration // until the limit's, as answered
	err      error
}

// idle is the client of the server that does nothing. It runs along, so that
// it sees the noise that the others see.
const idle = replicas

// A load calls all replicas and the server that does nothing until it is
// stopped.
type load struct {
	style
	stop chan struct{}
	wait sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

func startLoad(t *testing.T, st style, services []*testenv.Headgate, idleAddr string) *load {
	t.Helper()
	l := &load{style: st, stop: make(chan struct{})}
	var addrs []string
	for _, s := range services {
		addrs = append(addrs, s.GRPC)
	}
	for i, addr := range append(addrs, idleAddr) {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		client := rls.NewRateLimitServiceClient(conn)
		connect(t, client)
		l.wait.Go(func() { l.drive(i, client) })
	}
	t.Cleanup(l.end)
	return l
}

// connect makes a connection, which is not part of a call, by one that no rule is
// for.
func connect(t *testing.T, client rls.RateLimitServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request := newRequest("unruled", "x")
	if _, err := client.ShouldRateLimit(ctx, request, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("first call: %v", err)
	}
}

// drive makes calls at an even pace, whether or not earlier ones have ended.
func (l *load) drive(number int, client rls.RateLimitServiceClient) {
	requests := l.requests()
	slots := make(chan struct{}, inFlight)
	due := time.Now()
	for i := number; ; {
		due = due.Add(l.pause)
		select {
		case <-l.stop:
			return
		case <-time.After(time.Until(due)):
		}
		at := due
		for range l.burst {
			request := requests[i%len(requests)]
			i++
			slots <- struct{}{} // calls have deadlines, so there will be room
			l.wait.Go(func() {
				l.one(number, at, client, request)
				<-slots
			})
		}
		if now := time.Now(); now.Sub(due) > l.pause {
			due = now // what was missed is not made up for
		}
	}
}

// one makes a call. Those to the server that does nothing begin when they were
// due: when this process does not get to run, it is there that it shows.
func (l *load) one(number int, due time.Time, client rls.RateLimitServiceClient, request *rls.RateLimitRequest) {
	c := call{client: number, key: request.Descriptors[0].Entries[0].Key, began: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), l.deadline)
	defer cancel()
	answer, err := client.ShouldRateLimit(ctx, request)
	if number == idle {
		c.began = due
	}
	c.took, c.err = time.Since(c.began), err
	if err == nil {
		c.admitted = answer.OverallCode == rls.RateLimitResponse_OK
		c.degraded = answer.DynamicMetadata.GetFields()["degraded"].GetStringValue()
		for _, status := range answer.Statuses {
			c.reset = status.DurationUntilReset.AsDuration()
		}
	}
	l.mu.Lock()
	l.calls = append(l.calls, c)
	l.mu.Unlock()
}

// end stops the load and waits for its last calls, which have deadlines.
func (l *load) end() {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.wait.Wait()
}

// counted tells for each replica whether a call that began after an instant was
// decided by count.
func (l *load) counted(after time.Time) (by [replicas]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range slices.Backward(l.calls) {
		if c.client != idle && c.key == free && c.err == nil && c.degraded == "" && c.began.After(after) {
			by[c.client] = true
		}
	}
	return by
}
