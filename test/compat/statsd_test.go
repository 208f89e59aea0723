package compat

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/headgate-rls/headgate/test/testenv"
)

// A statsCollector adds up what comes by StatsD.
type statsCollector struct {
	address string

	mu     sync.Mutex
	counts map[string]string // by name and kind: the last gauge, the sum of a counter, or that there is a time
	sums   map[string]int
}

var statLine = regexp.MustCompile(`^([^:|]+):([0-9.]+)\|(c|g|ms)(\|@[0-9.]+)?$`)

func (c *statsCollector) read(t *testing.T, r io.Reader) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		m := statLine.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Errorf("not a line of StatsD: %q", lines.Text())
			continue
		}
		c.mu.Lock()
		name := m[1] + "|" + m[3]
		if m[3] == "c" {
			n := 0
			for _, digit := range m[2] {
				n = 10*n + int(digit-'0')
			}
			c.sums[name] += n
		} else {
			c.counts[name] = m[2]
		}
		c.mu.Unlock()
	}
	if err := lines.Err(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("read StatsD: %v", err)
	}
}

// collect starts a collector for a protocol.
func collect(t *testing.T, protocol string) *statsCollector {
	t.Helper()
	c := &statsCollector{counts: map[string]string{}, sums: map[string]int{}}
	var running sync.WaitGroup
	if protocol == "udp" {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		c.address = conn.LocalAddr().String()
		running.Go(func() {
			for buf := make([]byte, 1<<16); ; {
				n, _, err := conn.ReadFrom(buf)
				if err != nil {
					return
				}
				c.read(t, strings.NewReader(string(buf[:n])))
			}
		})
		t.Cleanup(func() { conn.Close(); running.Wait() })
		return c
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { defer conn.Close(); c.read(t, conn) })
		}
	})
	t.Cleanup(func() { l.Close() }) // connections end with the programs
	return c
}

// kinds returns the names and kinds of what has come, and the sums of the counters of rules.
func (c *statsCollector) kinds() (names []string, hits map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names = slices.AppendSeq(slices.Collect(maps.Keys(c.sums)), maps.Keys(c.counts))
	slices.Sort(names)
	hits = map[string]int{}
	for name, n := range c.sums {
		if !strings.HasPrefix(name, "ratelimit.go.") {
			hits[name] = n
		}
	}
	return names, hits
}

// notServed are names of the reference that headgate does not send; docs/migrate.md says so.
var notServed = regexp.MustCompile(`\.domain_not_found\.|\.redis_pool\.cx_(total|local_close)\.|^runtime\.`)

// sometimes are counters that are sent only after the garbage collector has run, as it likes.
var sometimes = regexp.MustCompile(`^ratelimit\.go\.(pauseTotalNs|numGC|frees)\.`)

// The reference and headgate send the same lines for the same calls: names, tags, kinds and, of what is counted, sums.
func TestStatsDOfTheReference(t *testing.T) {
	t.Parallel()
	reference := testenv.Built(t, "RATELIMIT_REFERENCE", "ratelimit-reference", "service_cmd")
	server := testenv.StartRedis(t)
	root := t.TempDir()
	write(t, filepath.Join(root, "ratelimit/config/a.yaml"), `domain: default/eg.http
descriptors:
  - {key: ten, rate_limit: {unit: day, requests_per_unit: 10}}
  - {key: shadow, value: "*", shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - key: masked_remote_address
    value: 192.0.2.0/24
    descriptors:
      - {key: b, descriptors: [{key: c, descriptors: [{key: "d:|e", rate_limit: {unit: day, requests_per_unit: 1}}]}]}
      - {key: b2, descriptors: [{key: c, descriptors: [{key: f, rate_limit: {unit: day, requests_per_unit: 1}}]}]}
`)
	for _, protocol := range []string{"udp", "tcp"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			sent := func(path, name string) *statsCollector {
				c := collect(t, protocol)
				host, port, _ := net.SplitHostPort(c.address)
				env := map[string]string{"RUNTIME_ROOT": root, "RUNTIME_SUBDIRECTORY": "ratelimit",
					"RUNTIME_WATCH_ROOT": "false", "RUNTIME_IGNOREDOTFILES": "true", "REDIS_SOCKET_TYPE": "tcp",
					"REDIS_URL": server.Addr, "CACHE_KEY_PREFIX": name + protocol, "USE_STATSD": "true", "STATSD_HOST": host,
					"STATSD_PORT": port, "STATS_FLUSH_INTERVAL": "200ms", "EXTRA_TAGS": "zone:a.b,env:prod",
					"HEADGATE_DRAIN_DELAY": "0s"}
				if protocol == "udp" {
					env["STATSD_PROTOCOL"] = "udp" // tcp is the default
				}
				s := startProgram(t, path, env)
				ask := func(domain string, hits uint32, list ...*common.RateLimitDescriptor) {
					t.Helper()
					if _, err := s.call(domain, hits, list...); err != nil {
						t.Fatal(err)
					}
				}
				ask("default/eg.http", 7, descriptor("ten=x"))
				ask("default/eg.http", 5, descriptor("ten=x"))
				ask("default/eg.http", 1, descriptor("shadow=y"), descriptor("shadow=y"))
				ask("default/eg.http", 3, descriptor("masked_remote_address=192.0.2.0/24", "b=1", "c=2", "d:|e=3"))
				ask("default/eg.http", 2, descriptor("masked_remote_address=192.0.2.0/24", "b2=1", "c=2", "f=3"))
				if _, err := s.call("", 1, descriptor("a=b")); err == nil {
					t.Error("a call without a domain succeeds")
				}
				return c
			}
			theirs, ours := sent(reference, "r"), sent(program, "h")
			var want, got []string
			var wantHits, gotHits map[string]int
			for deadline := time.Now().Add(startWithin); ; time.Sleep(50 * time.Millisecond) {
				want, wantHits = theirs.kinds()
				got, gotHits = ours.kinds()
				want = slices.DeleteFunc(want, func(n string) bool { return notServed.MatchString(n) || sometimes.MatchString(n) })
				got = slices.DeleteFunc(got, sometimes.MatchString)
				maps.DeleteFunc(wantHits, func(n string, _ int) bool { return notServed.MatchString(n) })
				same := slices.Equal(got, want) && maps.Equal(gotHits, wantHits) && len(want) > 20
				if same || time.Now().After(deadline) {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("headgate sends\n%s\nthe reference\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if !maps.Equal(gotHits, wantHits) {
				t.Errorf("headgate counts\n%v\nthe reference\n%v", gotHits, wantHits)
			}
		})
	}
}
