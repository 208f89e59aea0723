package statsd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
)

// A collector receives what is sent by UDP.
type collector struct {
	net.PacketConn
	t *testing.T
}

func listen(t *testing.T) *collector {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &collector{c, t}
}

// packets returns what has come.
func (c *collector) packets() (all []string) {
	c.t.Helper()
	buf := make([]byte, 1<<16)
	for {
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return all
		}
		all = append(all, string(buf[:n]))
	}
}

// lines returns the lines that have come, in order.
func (c *collector) lines() string {
	c.t.Helper()
	lines := strings.Split(strings.TrimSuffix(strings.Join(c.packets(), ""), "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// A figure is what a test sends.
type figure struct {
	mu     sync.Mutex
	values map[[2]string]float64
}

func (f *figure) set(a, b string, v float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[[2]string{a, b}] = v
}

func (f *figure) metric(name string, kind metrics.Kind) Metric {
	f.values = map[[2]string]float64{}
	return Metric{Name: name, Row: metrics.Row{Kind: kind, Each: func(emit metrics.Emit) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for labels, v := range f.values {
			emit(labels[:], v, nil)
		}
	}}}
}

// Counters say what they have counted since they were last sent, gauges how they are, and histograms how many
// observations there were of each size.
func TestLines(t *testing.T) {
	c := listen(t)
	var count, level figure
	var times metrics.Histograms
	row := times.Row("times", "", []float64{.01, .1}, metrics.Closed("m", "Ask"))
	s := New(Config{Address: c.LocalAddr().String(), Protocol: "udp", Log: slog.Default(),
		Tags: []string{"z:1", "a:b.c|d:e"}, Metrics: []Metric{count.metric("r.{}.hits", metrics.IsCounter),
			level.metric("r.{}", metrics.IsGauge), {"t.{}.ms", row}}})
	const tags = ".__a=b_c_d_e.__z=1:"
	want := func(lines string) {
		t.Helper()
		s.send(t.Context())
		if got := c.lines(); got != strings.ReplaceAll(lines, ":", tags) {
			t.Errorf("got\n%s, want\n%s", got, strings.ReplaceAll(lines, ":", tags))
		}
	}
	count.set("d", "k", 5)
	count.set("d", "", 7)
	count.set("d", "zero", 0)
	level.set("g", "", 3)
	times.Of("Ask").Took(5*time.Millisecond, 4)
	times.Of("Ask").Took(time.Second, 1)
	want("r.d.hits:7|c r.d.k.hits:5|c r.g:3|g t.Ask.ms:100|ms t.Ask.ms:5|ms|@0.25")
	want("r.g:3|g")
	count.set("d", "k", 6)
	level.set("g", "", 0)
	times.Of("Ask").Took(20*time.Millisecond, 1)
	want("r.d.k.hits:1|c r.g:0|g t.Ask.ms:55|ms")
	count.set("d", "k", 2) // of a new series
	want("r.d.k.hits:2|c r.g:0|g")
	count.set("d", "a\nforged\r\x00", 1) // a value that a client chose begins no other line
	want("r.d.a_forged__.hits:1|c r.g:0|g")
}

// DogStatsD has tags at the end of each line.
func TestDogStatsD(t *testing.T) {
	c := listen(t)
	var count, level figure
	s := New(Config{Address: c.LocalAddr().String(), Protocol: Dog, Log: slog.Default(), Tags: []string{"z:1", "a:b.c|d"},
		Metrics: []Metric{count.metric("r.{}.hits", metrics.IsCounter), level.metric("r.{}", metrics.IsGauge)}})
	count.set("d", "k", 5)
	level.set("g", "", 3)
	s.send(t.Context())
	if got, want := c.lines(), "r.d.k.hits:5|c|#z:1,a:b.c_d r.g:3|g|#z:1,a:b.c_d"; got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	s = New(Config{Address: c.LocalAddr().String(), Protocol: Dog, Log: slog.Default(),
		Metrics: []Metric{count.metric("r.{}.hits", metrics.IsCounter)}})
	count.set("d", "k", 5)
	s.send(t.Context())
	if got := c.lines(); got != "r.d.k.hits:5|c" {
		t.Errorf("without tags: %s", got)
	}
}

// No packet is larger than a network takes, and a name that is larger keeps no other back.
func TestPacketsAreSmall(t *testing.T) {
	c := listen(t)
	var count figure
	var log strings.Builder
	s := New(Config{Address: c.LocalAddr().String(), Protocol: "udp", Log: slog.New(slog.NewTextHandler(&log, nil)),
		Metrics: []Metric{count.metric("r.{}.hits", metrics.IsCounter)}})
	for i := range 1000 {
		count.set("domain", fmt.Sprint("a_key_of_some_length_", i), 1)
	}
	count.set("domain", strings.Repeat("x", 3000), 1)
	s.send(t.Context())
	packets := c.packets()
	lines := strings.Count(strings.Join(packets, ""), "\n")
	for _, p := range packets {
		if len(p) > 1400 || !strings.HasSuffix(p, "|c\n") {
			t.Errorf("a packet of %d bytes, which ends with %q", len(p), p[len(p)-10:])
		}
	}
	if lines != 1000 || len(packets) > 60 {
		t.Errorf("%d lines in %d packets, want 1000 in few", lines, len(packets))
	}
	if !strings.Contains(log.String(), "names_longer_than_a_packet=1") {
		t.Errorf("the log says %s", log.String())
	}
}

// While the collector is away, nothing is lost that was counted, and the log has one line a minute.
func TestCollectorIsAway(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "no-such-host.invalid:8125"} {
		t.Run(address, func(t *testing.T) {
			var count figure
			var log strings.Builder
			s := New(Config{Address: address, Protocol: "tcp", Log: slog.New(slog.NewTextHandler(&log, nil)),
				Metrics: []Metric{count.metric("{}", metrics.IsCounter)}})
			for i := range 3 {
				count.set("a", "b", float64(i+1))
				s.send(t.Context())
			}
			if n := strings.Count(log.String(), "metrics do not reach the StatsD collector"); n != 1 {
				t.Errorf("%d lines:\n%s", n, log.String())
			}
			s.warned = time.Now().Add(-warnEvery)
			s.send(t.Context())
			if n := strings.Count(log.String(), "metrics do not reach"); n != 2 || s.failed.Value() != 4 {
				t.Errorf("a minute later: %d lines, %d failures", n, s.failed.Value())
			}
			c := listen(t)
			s.conf.Address, s.conf.Protocol = c.LocalAddr().String(), "udp"
			s.send(t.Context())
			if got := c.lines(); got != "a.b:3|c" || s.ok.Value() != 1 {
				t.Errorf("when it is back: %q", got)
			}
		})
	}
}

// A collector that takes no bytes ends no lock and is given up: rows are read before anything is sent.
func TestCollectorThatDoesNotRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var count figure
	m := count.metric("{}", metrics.IsCounter)
	for i := range 10_000 { // more than the system's buffers hold
		count.set(strings.Repeat("x", 1300), fmt.Sprint(i), 1)
	}
	s := New(Config{Address: l.Addr().String(), Protocol: "tcp", Log: slog.New(slog.DiscardHandler), Metrics: []Metric{m}})
	done := make(chan time.Duration)
	go func() {
		begun := time.Now()
		s.send(context.Background())
		done <- time.Since(begun)
	}()
	longest := time.Duration(0)
	for {
		begun := time.Now()
		count.set("another", "", 1) // waits while the row is read, and not for the collector
		longest = max(longest, time.Since(begun))
		select {
		case took := <-done:
			if took > 2*sendWithin || s.failed.Value() != 1 {
				t.Errorf("it took %v, %d failures", took, s.failed.Value())
			}
			if longest > sendWithin/2 {
				t.Errorf("who counts has waited for %v", longest)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// Run sends at its interval, and what is left at the end.
func TestRunSendsTheRest(t *testing.T) {
	c := listen(t)
	var count figure
	s := New(Config{Address: c.LocalAddr().String(), Protocol: "udp", Interval: time.Hour, Log: slog.Default(),
		Metrics: []Metric{count.metric("{}", metrics.IsCounter)}})
	count.set("a", "", 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	cancel()
	<-ended
	if got := c.lines(); got != "a:1|c" {
		t.Errorf("got %q", got)
	}
}
