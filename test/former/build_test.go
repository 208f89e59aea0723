package former

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// A build is one of the two programs, which runs or not.
type build struct {
	t       *testing.T
	name    string // former, or this
	program string
	flags   []string

	server *testenv.Headgate
	conn   *grpc.ClientConn
	client rls.RateLimitServiceClient
}

// callLimit bounds a call. Nothing here is late: the store is asked for as long.
const callLimit = 30 * time.Second

// runs starts or stops the build.
func (b *build) runs(on bool) {
	b.t.Helper()
	if on == (b.server != nil) {
		return
	}
	if !on {
		b.healthy()
		_ = b.conn.Close()
		if err := b.server.Stop(); err != nil {
			b.t.Errorf("%s: %v", b.name, err)
		}
		b.server = nil
		return
	}
	b.server = testenv.ServeHeadgate(b.t, b.program, b.flags...)
	conn, err := grpc.NewClient("passthrough:///"+b.server.GRPC, grpc.WithTransportCredentials(
		insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.conn, b.client = conn, rls.NewRateLimitServiceClient(conn)
	b.t.Cleanup(func() { _ = conn.Close() })
}

// healthy checks that the build has decided everything by its counters, and has logged nothing that is wrong.
func (b *build) healthy() {
	b.t.Helper()
	page, err := b.server.Fetch("/metrics")
	if err != nil {
		b.t.Errorf("%s: %v", b.name, err)
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "headgate_degraded_requests_total{") && !strings.HasSuffix(line, " 0\n") {
			b.t.Errorf("%s: %s", b.name, line)
		}
	}
	for line := range strings.Lines(b.server.Log()) {
		if strings.Contains(line, "level=ERROR") {
			b.t.Errorf("%s: %s", b.name, line)
		}
	}
}

// An answer is what came of a call.
type answer struct {
	passed    bool
	remaining int64  // of the first descriptor
	token     string // of what the call holds
}

// ask sends a call.
func (b *build) ask(descriptors ...*common.RateLimitDescriptor) (a answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	r, err := b.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "d", Descriptors: descriptors})
	if err != nil {
		return a, fmt.Errorf("%s: %w", b.name, err)
	}
	a.passed = r.OverallCode == rls.RateLimitResponse_OK
	a.token = r.GetDynamicMetadata().GetFields()[ratelimit.DefaultLeaseKey].GetStringValue()
	if len(r.Statuses) > 0 {
		a.remaining = int64(r.Statuses[0].LimitRemaining)
	}
	return a, nil
}

// must is ask for a call that fails the test if it fails.
func (b *build) must(descriptors ...*common.RateLimitDescriptor) answer {
	b.t.Helper()
	a, err := b.ask(descriptors...)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// entry is a descriptor of pairs of keys and values.
func entry(pairs ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// hits is entry with a number of hits.
func hits(n uint64, pairs ...string) *common.RateLimitDescriptor {
	d := entry(pairs...)
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}
