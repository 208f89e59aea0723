package server

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

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/serving"
	"github.com/headgate-rls/headgate/test/testenv"
)

const sharedRules = `domain: example
descriptors:
  - key: client
    rate_limit: {unit: year, requests_per_unit: 100, local_share: 10}
`

func writeRules(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLocalShare: two replicas on one Redis admit what the limit says,
// of which one in ten is a trip.
func TestLocalShare(t *testing.T) {
	rules, redis := writeRules(t, sharedRules), testenv.StartRedis(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admitted := 0
	for i, hits := range []string{"54", "36"} {
		r := startServe(t, "--rules", rules, "--backend", redis.URL())
		client := rls.NewRateLimitServiceClient(r.Dial(r.GRPC))
		for range 60 {
			resp, err := client.ShouldRateLimit(ctx, exampleRequest())
			if err != nil {
				t.Fatal(err)
			}
			if resp.OverallCode == rls.RateLimitResponse_OK {
				admitted++
				if want := uint32(100 - admitted); resp.Statuses[0].LimitRemaining != want {
					t.Fatalf("%d remaining, want %d", resp.Statuses[0].LimitRemaining, want)
				}
			}
		}
		_, metrics := r.Get(r.Debug, "/metrics")
		for _, want := range []string{"\nheadgate_share_hits_total " + hits + "\n", "\nheadgate_share_keys 1\n",
			"\nheadgate_share_taken_units_total " + hits + "\n"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("replica %d: the metrics lack %q", i, want)
			}
		}
	}
	if admitted != 100 {
		t.Errorf("%d admitted of 100", admitted)
	}
}

// TestLocalShareAuto: three replicas whose shares follow the traffic admit no more than the limit and at least
// 99 in a hundred of it, most of it without the store; what a replica holds goes back when it stops.
func TestLocalShareAuto(t *testing.T) {
	const callers = 16
	most := random.Times(4000, 20_000)
	redis := testenv.StartRedis(t)
	for name, url := range map[string]string{
		"redis": redis.URL() + "?prefix=a", "redis as envoyproxy-ratelimit": redis.URL() + "?layout=envoy",
		"postgres": testenv.StartDatabase(t, testenv.Postgres).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // replicas wait until they know each other, and until they have drained
			rules := writeRules(t, strings.Replace(sharedRules, "100, local_share: 10", strconv.Itoa(most), 1))
			flags := []string{"--rules", rules, "--backend", url, "--local-share", "auto", "--charge", "each", "--overflow",
				"saturate", "--backend-required"}
			replicas := []*serving.Server{startServe(t, flags...), startServe(t, flags...), startServe(t, flags...)}
			admitted := make([]atomic.Int64, len(replicas))
			spend := func(replica int, n int) {
				var all sync.WaitGroup
				client := rls.NewRateLimitServiceClient(replicas[replica].Dial(replicas[replica].GRPC))
				for range callers {
					all.Go(func() {
						for range n / callers {
							resp, err := client.ShouldRateLimit(t.Context(), exampleRequest())
							if err != nil {
								t.Error(err)
								return
							}
							if resp.OverallCode == rls.RateLimitResponse_OK {
								admitted[replica].Add(1)
							}
						}
					})
				}
				all.Wait()
			}
			spend(0, most/5)
			replicas[0].Stop()
			replicas[0].Ends(20 * time.Second)
			// Its first request goes to the store. Of later ones it may say what was left a moment before.
			client := rls.NewRateLimitServiceClient(replicas[1].Dial(replicas[1].GRPC))
			resp, err := client.ShouldRateLimit(t.Context(), exampleRequest())
			if want := uint32(most - most/5 - 1); err != nil || resp.Statuses[0].LimitRemaining != want {
				t.Errorf("%v, %v; want %d remaining once a replica has stopped", resp, err, want)
			}
			for i := 0; !knowEachOther(replicas[1], replicas[2]); i++ {
				if i == 100 {
					t.Fatal("two replicas with traffic do not count each other")
				}
				spend(1, callers)
				spend(2, callers)
				time.Sleep(100 * time.Millisecond)
			}
			var all sync.WaitGroup
			for _, replica := range []int{1, 2} {
				all.Go(func() { spend(replica, most*3/5) })
			}
			all.Wait()
			sum := 1 + int(admitted[0].Load()+admitted[1].Load()+admitted[2].Load())
			if sum > most || sum < most*99/100 {
				t.Errorf("%d of %d were admitted", sum, most)
			}
			hits := 0
			for _, r := range replicas[1:] {
				_, metrics := r.Get(r.Debug, "/metrics")
				_, rest, _ := strings.Cut(metrics, "\nheadgate_share_hits_total ")
				n, err := strconv.Atoi(strings.Fields(rest + " none")[0])
				hits += n
				if err != nil {
					t.Error(err)
				}
			}
			if hits < most/random.Times(10, 4) { // it takes a while to know the traffic
				t.Errorf("%d of %d needed no trip", hits, sum)
			}
			t.Logf("%d admitted, %d of them without a trip in the last two replicas", sum, hits)
		})
	}
}

// knowEachOther reports whether all replicas have counted so many.
func knowEachOther(replicas ...*serving.Server) bool {
	for _, r := range replicas {
		_, metrics := r.Get(r.Debug, "/metrics")
		if !strings.Contains(metrics, fmt.Sprintf("\nheadgate_share_replicas %d\n", len(replicas))) {
			return false
		}
	}
	return true
}
