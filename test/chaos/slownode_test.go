package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/test/testenv"
)

// Rules and calls of TestSlowNode. Windows of a year hardly ever end during a
// test. Of a tight limit much is refused, on whichever node of the Cluster its
// counter is; then the other descriptors' nodes must get back what they gave.
const (
	slowRules = `domain: chaos
descriptors:
- {key: roomy, rate_limit: {unit: year, requests_per_unit: 1000000}}
- {key: tight, rate_limit: {unit: year, requests_per_unit: 40}}
`
	roomyMax, tightMax = 1_000_000, 40
	slowValues         = 8 // of each key, so that they are on all nodes
	slowDeadline       = 20 * time.Millisecond
	slowPause          = 60 * time.Millisecond
)

// slowCalls counts what came of calls, by value.
type slowCalls struct {
	tight, roomy, unknown [slowValues]atomic.Int64 // admitted by count; roomy: and those that may have been charged
	refused, failed       atomic.Int64
}

func slowRequest(tight int, roomy ...int) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: domain}
	add := func(key string, value int) {
		r.Descriptors = append(r.Descriptors, &common.RateLimitDescriptor{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: strconv.Itoa(value)}}})
	}
	for _, v := range roomy {
		add("roomy", v)
	}
	if tight >= 0 {
		add("tight", tight)
	}
	return r
}

// call makes one call with two or three descriptors.
func (c *slowCalls) call(client rls.RateLimitServiceClient, n int) {
	tight, roomy := n%slowValues, []int{n / slowValues % slowValues, (n/slowValues + 1 + n%3) % slowValues}
	roomy = roomy[:1+n%2]
	ctx, cancel := context.WithTimeout(context.Background(), slowDeadline)
	defer cancel()
	answer, err := client.ShouldRateLimit(ctx, slowRequest(tight, roomy...))
	switch {
	case err != nil || answer.DynamicMetadata.GetFields()["degraded"] != nil:
		c.failed.Add(1)
		for _, v := range roomy {
			c.unknown[v].Add(1)
		}
	case answer.OverallCode == rls.RateLimitResponse_OK:
		c.tight[tight].Add(1)
		for _, v := range roomy {
			c.roomy[v].Add(1)
		}
	default:
		c.refused.Add(1)
	}
}

// TestSlowNode: a node of a Cluster that stands still for a moment, again and
// again, costs answers by policy and nothing else: headgate lives, no limit is
// exceeded, and what refused requests took on other nodes comes back, and not
// more than that.
func TestSlowNode(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs headgate for some seconds")
	}
	cluster := testenv.StartRedisCluster(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(slowRules), 0o600); err != nil {
		t.Fatal(err)
	}
	service := startService(t, 0, "--rules", file, "--backend", "redis+cluster://"+strings.Join(cluster.Addrs, ","))
	conn, err := grpc.NewClient(service.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := rls.NewRateLimitServiceClient(conn)
	connect(t, client)

	var calls slowCalls
	var all sync.WaitGroup
	stop := make(chan struct{})
	for i := range 16 {
		all.Go(func() {
			for n := i; ; n += 17 {
				select {
				case <-stop:
					return
				default:
					calls.call(client, n)
				}
			}
		})
	}
	for began, i := time.Now(), 0; !service.Exited(); i++ {
		if took := time.Since(began); took > 4*time.Second && (calls.shown() || took > 40*time.Second) {
			break
		}
		master := cluster.Nodes[i%3]
		master.Pause()
		time.Sleep(slowPause)
		master.Resume()
		time.Sleep(slowPause / 2)
	}
	close(stop)
	all.Wait()
	if service.Exited() {
		log := service.Log()
		t.Fatalf("headgate ended by itself:\n%s", log[max(0, len(log)-3000):])
	}
	t.Logf("%d refused, %d answered by policy or too late", calls.refused.Load(), calls.failed.Load())
	calls.want(t, client)
}

// shown reports whether there was something of each kind.
func (c *slowCalls) shown() bool {
	var admitted int64
	for v := range slowValues {
		admitted += c.tight[v].Load()
	}
	return admitted > 0 && c.refused.Load() > 100 && c.failed.Load() > 100
}

// want compares what the counters say, once everything is given back, with what
// the answers said.
func (c *slowCalls) want(t *testing.T, client rls.RateLimitServiceClient) {
	t.Helper()
	for v := range slowValues {
		if n := c.tight[v].Load(); n > tightMax {
			t.Errorf("tight %d: %d admitted, at most %d", v, n, tightMax)
		}
	}
	if !c.shown() {
		t.Errorf("%d refused, %d by policy: nothing was shown", c.refused.Load(), c.failed.Load())
	}
	for v := range slowValues {
		testenv.Eventually(t, 10*time.Second, "have the units of refused requests back", func() string {
			used, err := roomyUsed(client, v)
			least := c.roomy[v].Load()
			if err != nil || used < least || used > least+c.unknown[v].Load() {
				return fmt.Sprintf(
					"roomy %d: %d used, want %d and at most %d more, of calls that were not counted for certain; error %v",
					v, used, least, c.unknown[v].Load(), err)
			}
			return ""
		})
	}
}

// roomyUsed asks how many units of a roomy counter are used.
func roomyUsed(client rls.RateLimitServiceClient, value int) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	request := slowRequest(-1, value)
	request.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	answer, err := client.ShouldRateLimit(ctx, request)
	if err != nil || answer.DynamicMetadata.GetFields()["degraded"] != nil {
		return 0, fmt.Errorf("not answered by count: %v", err)
	}
	return roomyMax - int64(answer.Statuses[0].LimitRemaining), nil
}
