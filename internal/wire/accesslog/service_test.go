package accesslog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	datapb "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	commonpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate-rls/headgate/backends/memory"
	"github.com/headgate-rls/headgate/descriptors/rulefile"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/internal/wire/messages"
	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
	"github.com/headgate-rls/headgate/ratelimit/leases"
)

// The tracker is what streams speak to.
var _ Leases = (*leases.Tracker)(nil)

// A world is the service on a backend at a time that the test sets.
type world struct {
	testing.TB
	*ratelimit.Service
	now    atomic.Int64 // limit.Instant
	counts *ratelimit.Metrics
}

func newWorld(t testing.TB, concurrency int) *world {
	t.Helper()
	w := &world{TB: t, counts: ratelimit.NewMetrics()}
	w.now.Store(int64(limit.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))))
	rules := fmt.Sprintf(`
domain: d
descriptors:
  - key: tenant
    concurrency: [{threshold: %d, response: {statusCode: 429}}]
    lease_ttl: 1m
`, concurrency)
	set, problems := rulefile.Load([]rulefile.Source{{Name: "test.yaml", Data: []byte(rules)}}, rulefile.Options{})
	if set == nil {
		t.Fatal(problems)
	}
	be, local := memory.New(memory.Config{}), memory.New(memory.Config{})
	var err error
	w.Service, err = ratelimit.New(ratelimit.Config{
		Backend: be, Caps: memory.Caps(), Local: local, Encoder: messages.Encoder{}, Metrics: w.counts,
		Registry: be.Registry(), Log: slog.New(slog.DiscardHandler),
		Now: func() limit.Instant { return limit.Instant(w.now.Load()) },
	}, set)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		w.Close(ctx)
		_, _ = be.Close(), local.Close()
	})
	return w
}

// acquire returns the lease of a request, as Envoy gets it.
func (w *world) acquire() string {
	w.Helper()
	resp, err := transport.Answer(context.Background(), w.Service,
		&rls.RateLimitRequest{Domain: "d", Descriptors: []*commonpb.RateLimitDescriptor{
			{Entries: []*commonpb.RateLimitDescriptor_Entry{{Key: "tenant", Value: "x"}}}}})
	if err != nil {
		w.Fatal(err)
	}
	token := resp.GetDynamicMetadata().GetFields()[ratelimit.DefaultLeaseKey].GetStringValue()
	if token == "" {
		w.Fatalf("no lease: %v", resp)
	}
	return token
}

func (w *world) inFlight() (n int64) {
	w.Helper()
	if err := w.Leases().Join(context.Background()); err != nil {
		w.Fatal(err)
	}
	list, complete := w.Leases().InFlight()
	if !complete {
		w.Error("the count is not complete")
	}
	for _, f := range list {
		n += f.Count
	}
	return n
}

// event returns how often something became of leases of a rule, by "domain/rule event".
func (w *world) event(name string) (n int64) {
	of, event, _ := strings.Cut(name, " ")
	domain, rule, _ := strings.Cut(of, "/")
	for _, r := range w.counts.Rows() {
		if r.Name != "headgate_leases_total" {
			continue
		}
		r.Each(func(labels []string, v float64, _ *metrics.Counts) {
			if slices.Equal(labels, []string{domain, rule, event}) {
				n = int64(v)
			}
		})
	}
	return n
}

// TestEntriesReachTheTracker: a lease lives on as long as periodic entries come, and ends with
// its request's end. Metrics count it for the rule that granted the lease.
func TestEntriesReachTheTracker(t *testing.T) {
	w := newWorld(t, 100)
	h := setup(t, w.Leases(), Config{})
	kept, lost := w.acquire(), w.acquire()
	s := h.open()
	for i := 1; i <= 4; i++ {
		w.now.Add(int64(40 * time.Second / time.Microsecond))
		h.send(s, from("envoy-1", message(entry(periodic, kept))))
		h.eventually("it is renewed", func() bool { return w.event("d/tenant renewed") == int64(i) })
	}
	young := w.acquire()
	if n := w.inFlight(); n != 2 {
		t.Errorf("%d in flight, want the one that is renewed and a young one", n)
	}
	h.send(s, message(entry(end, kept), entry(end, lost), entry(end, "forged"), entry(end, young)))
	h.finish(s)
	if n := w.inFlight(); n != 0 {
		t.Errorf("%d in flight after all ends", n)
	}
	for name, want := range map[string]int64{"d/tenant released": 2, "d/tenant expired": 0, "/ unknown": 1,
		"d/tenant unknown": 0} {
		if got := w.event(name); got != want {
			t.Errorf("%d %s, want %d", got, name, want)
		}
	}
}

// TestMessageMayEndManyLeases: one message may end more than one call of the service takes.
func TestMessageMayEndManyLeases(t *testing.T) {
	const n = 700
	w := newWorld(t, n)
	h := setup(t, w.Leases(), Config{})
	var list []*datapb.HTTPAccessLogEntry
	for range n {
		list = append(list, entry(end, w.acquire()))
	}
	s := h.open()
	h.send(s, from("envoy-1", message(list...)))
	h.finish(s)
	if left, released := w.inFlight(), w.event("d/tenant released"); left != 0 || released != n {
		t.Errorf("%d in flight, %d released of %d", left, released, n)
	}
}

// BenchmarkRenewals is the whole way of an entry: socket, decoding, the service.
func BenchmarkRenewals(b *testing.B) {
	const entries = 16
	w := newWorld(b, entries)
	h := setup(b, w.Leases(), Config{})
	list := make([]*datapb.HTTPAccessLogEntry, entries)
	for i := range list {
		list[i] = entry(periodic, w.acquire())
	}
	m, s := from("envoy-1", message(list...)), h.open()
	for b.Loop() {
		h.send(s, m)
	}
	h.finish(s)
	perEntry(b, entries)
	if n := w.event("d/tenant renewed"); n != int64(b.N*entries) {
		b.Errorf("%d renewed of %d", n, b.N*entries)
	}
}
