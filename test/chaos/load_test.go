//go:build chaos

package chaos

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	replicas = 3
	domain   = "chaos"

	callDeadline = 100 * time.Millisecond
	// headgate keeps a tenth of the deadline for itself. When this machine takes
	// longer to run a process that is ready to, a call may end at its deadline
	// whatever headgate does.
	margin = callDeadline / 10

	// A client makes burst calls each pause, and has at most inFlight of them
	// under way.
	pause    = 10 * time.Millisecond
	burst    = 3
	inFlight = 128
)

// policies and limits make the rules: one for each pair. With about 60 calls a
// second for each key, the load uses up the first limit before the fault, the
// second about when it begins and the third while it lasts or after it.
var (
	policies = []string{"allow", "deny", "local"}
	limits   = []int{45, 150, 240}
)

const (
	// free is the key of a rule that never refuses, so that its answers tell
	// what the backend says right now; no refusal of it is ever remembered.
	free       = "free"
	freeValues = 6 // more than one, to be on several nodes of a Cluster
)

// rules has windows of a year, so that hardly ever one ends during a test.
func rules() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n", domain)
	for _, p := range policies {
		for _, n := range limits {
			fmt.Fprintf(&b, "- {key: %s_%d, on_backend_error: %s, rate_limit: {unit: year, requests_per_unit: %d}}\n", p, n, p, n)
		}
	}
	fmt.Fprintf(&b, "- {key: %s, on_backend_error: deny, rate_limit: {unit: year, requests_per_unit: 1000000000}}\n", free)
	return b.String()
}

func newRequest(key, value string) *rls.RateLimitRequest {
	entry := &common.RateLimitDescriptor_Entry{Key: key, Value: value}
	return &rls.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{entry}},
	}}
}

// requests are what each client sends, in turn.
func requests() []*rls.RateLimitRequest {
	var list []*rls.RateLimitRequest
	for _, p := range policies {
		for _, n := range limits {
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
	degraded string // the policy that answered, if one did
	err      error
}

// idle is the client of the server that does nothing. It runs along, so that
// it sees the noise that the others see.
const idle = replicas

// A load calls all replicas and the server that does nothing until it is
// stopped.
type load struct {
	stop chan struct{}
	wait sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

func startLoad(t *testing.T, services []*service, idleAddr string) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	var addrs []string
	for _, s := range services {
		addrs = append(addrs, s.grpc)
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

// connect makes a connection, which is no part of a call, by one that no rule is
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
	requests := requests()
	slots := make(chan struct{}, inFlight)
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for i := number; ; {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		for range burst {
			request := requests[i%len(requests)]
			i++
			slots <- struct{}{} // calls have deadlines, so there will be room
			l.wait.Go(func() {
				l.one(number, client, request)
				<-slots
			})
		}
	}
}

func (l *load) one(number int, client rls.RateLimitServiceClient, request *rls.RateLimitRequest) {
	c := call{client: number, key: request.Descriptors[0].Entries[0].Key, began: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	answer, err := client.ShouldRateLimit(ctx, request)
	c.took, c.err = time.Since(c.began), err
	if err == nil {
		c.admitted = answer.OverallCode == rls.RateLimitResponse_OK
		c.degraded = answer.DynamicMetadata.GetFields()["degraded"].GetStringValue()
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
