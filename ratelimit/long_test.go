package ratelimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/ratelimit"
)

const longRules = `
domain: d
resources:
  - {path: /api/pay, rate_limit: {unit: hour, requests_per_unit: 1000000}}
`

// longRequest has five descriptors with as long a path as Envoy lets through,
// each spelt in another way.
func longRequest() *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: "d"}
	for _, what := range []string{"/", "/%2e", "/x/..", `\`, `"`} {
		path := "/" + strings.Repeat(what, (60<<10-16)/len(what)) + "/../api/pay"
		if what[0] == '/' {
			path = strings.Replace(path, "/../api", "/api", 1)
		}
		r.Descriptors = append(r.Descriptors, &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{
			{Key: "method", Value: "GET"}, {Key: "path", Value: path},
			{Key: "header.user-agent", Value: strings.Repeat("u", 200)},
		}})
	}
	return r
}

func wantAllLimited(t *testing.T, how string, resp *rls.RateLimitResponse) {
	t.Helper()
	if len(resp.Statuses) != 5 {
		t.Fatalf("%s: %v", how, resp)
	}
	for i, st := range resp.Statuses {
		if st.CurrentLimit == nil {
			t.Errorf("%s: descriptor %d has no limit", how, i)
		}
	}
}

// TestFiveLongPathsFit: a request with five descriptors of the longest path is
// answered by both transports and in JSON, and each of them is limited.
func TestFiveLongPathsFit(t *testing.T) {
	onTransports(t, longRules, func(h *ratelimit.Harness, conn *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			resp, err := rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, longRequest(), opts...)
			if err != nil {
				h.Fatal(err)
			}
			wantAllLimited(h.T, "gRPC", resp)
		}
	})
	h := ratelimit.Setup(t, longRules)
	body, err := protojson.Marshal(longRequest())
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	transport.JSONHandler(h.Service, func(time.Duration, ratelimit.CallResult, int) {}).ServeHTTP(w,
		httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(string(body))))
	resp := new(rls.RateLimitResponse)
	if err := protojson.Unmarshal(w.Body.Bytes(), resp); err != nil {
		t.Fatalf("%d %.200s: %v", w.Code, w.Body, err)
	}
	wantAllLimited(t, "JSON", resp)
}
