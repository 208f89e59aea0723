package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate-rls/headgate/test/random"
)

const pooledRules = `domain: d
descriptors:
- {key: few, rate_limit: {unit: day, requests_per_unit: 3}}
- {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: free, rate_limit: {unlimited: true}}
- key: both
  limits:
  - {name: a, algorithm: token_bucket, rate: 5/d, burst: 5}
  - {name: b, algorithm: sliding_log, rate: 4/d}
- {key: inside, concurrency: [{threshold: 2, response: {statusCode: 503}}]}
- key: few
  value: x
  descriptors: [{key: both, rate_limit: {unit: day, requests_per_unit: 2}}]
`

// pooledRequest makes a request that may be malformed, of another domain, or bring its own hits.
func pooledRequest(r *rand.Rand, id int) *Request {
	req := &Request{Domain: "d", Hits: uint32(r.IntN(3)), ID: fmt.Sprintf("id-%d", id)}
	if r.IntN(15) == 0 {
		req.Domain = []string{"", "unknown"}[r.IntN(2)]
	}
	texts := []string{"few=x", "few=y", "shadow=x", "free=x", "both=x", "inside=x", "none=x", "few=x,both=y",
		"=broken", "few=x,=broken"}
	for range r.IntN(5) {
		d := desc(texts[r.IntN(len(texts))])
		switch r.IntN(8) {
		case 0:
			d = d.withHits(uint64(r.IntN(3)))
		case 1:
			d = d.refund(1)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// TestPooledRecordsKeepNothing: a service that has decided much answers as one that is new, whatever came before:
// memory that is used again, also that of malformed requests, has nothing of them. (Quotas are given back after a slice
// is decided, so they have no rule here.)
func TestPooledRecordsKeepNothing(t *testing.T) {
	r := random.Rand(t, 1)
	for range random.Times(20, 500) {
		used, fresh := setup(t, pooledRules, unlogged), setup(t, pooledRules, unlogged)
		for id := 0; id < 120; {
			var reqs, again []*Request
			var resps []*Response
			for range 1 + r.IntN(6) {
				req := pooledRequest(r, id)
				copied := *req
				reqs, again, resps = append(reqs, req), append(again, &copied), append(resps, new(Response))
				id++
			}
			used.Decide(context.Background(), reqs, resps)
			for i := range again {
				one, err := New(fresh.conf, fresh.Rules())
				if err != nil {
					t.Fatal(err)
				}
				resp := new(Response)
				one.Decide(context.Background(), again[i:i+1], []*Response{resp})
				if got, want := summary(resps[i]), summary(resp); got != want {
					t.Fatalf("request %d, %+v:\ngot  %s\nwant %s", id, again[i], got, want)
				}
			}
		}
	}
}
