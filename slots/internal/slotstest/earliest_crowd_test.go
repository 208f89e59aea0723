package slotstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/slots"
	"github.com/headgate-rls/headgate/test/random"
	"github.com/headgate-rls/headgate/test/testenv"
)

const (
	crowdCallers = 64
	crowdToken   = "0123456789abcdef"
)

// A serverCrowd is callers of several servers on one database, as they are when they
// run with the standard settings.
type serverCrowd struct {
	f       *fixture
	servers []string // their addresses
	client  *http.Client
	numbers atomic.Int64
}

// eachCrowd runs the test with so many servers on each of the databases and engine.
func eachCrowd(t *testing.T, on map[string]func(*testing.T) Harness, processes int,
	run func(t *testing.T, c *serverCrowd)) {
	if testing.Short() {
		t.Skip("runs servers")
	}
	must(t, testenv.DependOnSources("../../.."), "sources")
	program, err := testenv.BuildHeadgate("../../..", t.TempDir())
	must(t, err, "build")
	for name, harness := range on {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harness(t)
			db := h.Fresh(t)
			store := db.Open(t)
			for i, engine := range h.engines(store) {
				t.Run(engine, func(t *testing.T) {
					c := &serverCrowd{f: &fixture{Harness: h, db: db, store: store, engine: engine, prefix: fmt.Sprint("crowd", i)}}
					c.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: crowdCallers}}
					t.Cleanup(c.client.CloseIdleConnections)
					for range processes {
						c.servers = append(c.servers, "http://"+testenv.StartHeadgate(t, program, "--example", "--slots", db.URL,
							"--slots-engine", engine,
							"--admin-token", crowdToken, "--slots-timeout", "30s").HTTP)
					}
					run(t, c)
				})
			}
		})
	}
}

// post asks a server until it does not say that asking again is worth it.
func (c *serverCrowd) post(server, path, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), suiteLimit)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+crowdToken)
		resp, err := c.client.Do(req)
		if err != nil {
			return 0, "", err
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			return resp.StatusCode, string(data), err
		}
		rest(ctx, 20*time.Millisecond)
	}
}

// put changes the config of the crowd by one of the servers.
func (c *serverCrowd) put(t *testing.T, server int, max, sizeMs int64) {
	t.Helper()
	body := fmt.Sprintf(`{"configName": %q, "maxPerWindow": %d, "windowSize": "PT%d.%03dS"}`, c.f.prefix, max,
		sizeMs/1000, sizeMs%1000)
	if status, text, err := c.post(c.servers[server], "/admin/rate-limit/config", body); err != nil ||
		status != http.StatusOK {
		t.Fatalf("put a config: %d %s, %v", status, text, err)
	}
}

// assign has all callers ask for the times at once, each event of one server.
func (c *serverCrowd) assign(t *testing.T, times []time.Time) (events map[string]bool) {
	t.Helper()
	events = map[string]bool{}
	base := int(c.numbers.Add(int64(len(times)))) - len(times)
	for i := range times {
		events[c.f.event(base+i)] = true
	}
	var next atomic.Int64
	together(crowdCallers, func(k int) {
		for i := int(next.Add(1)) - 1; i < len(times); i = int(next.Add(1)) - 1 {
			body, err := json.Marshal(map[string]string{
				"eventId": c.f.event(base + i), "configName": c.f.prefix, "requestedTime": times[i].UTC().Format(time.RFC3339Nano),
			})
			must(t, err, "body")
			if status, text, err := c.post(c.servers[k%len(c.servers)], "/api/v1/slots", string(body)); err != nil ||
				status != http.StatusOK {
				t.Errorf("assign: %d %s, %v", status, text, err)
				return
			}
		}
	})
	return events
}

// holes are windows with room that events of the given ones should be in: those that a
// single caller would fill if it came now with the time of such an event.
func (c *serverCrowd) holes(t *testing.T, events map[string]bool, max, sizeMs int64) (holes []string) {
	t.Helper()
	model := newEarliest()
	config := slots.NewConfig{Name: c.f.prefix, Max: max, SizeMs: sizeMs}
	model.put(config)
	var mine []slots.Slot
	for _, s := range c.f.all(t) {
		if s.Scope != c.f.prefix {
			continue
		}
		model.place(s.EventID, config.Name, s.WindowMs, s.ScheduledMs)
		if events[s.EventID] {
			mine = append(mine, s)
			if s.SizeMs != sizeMs {
				holes = append(holes,
					fmt.Sprintf("event %s is in a window of %d ms, by a version of the config that was replaced before it asked",
						s.EventID, s.SizeMs))
			}
		}
	}
	if len(mine) != len(events) {
		t.Errorf("%d of %d events have a slot", len(mine), len(events))
	}
	for _, s := range mine {
		// Windows only ever fill up: one that has room now had it then.
		if w := model.window(config.Name, s.RequestedUs); w < s.WindowMs {
			holes = append(holes, fmt.Sprintf("event %s asked for %s and is in window %s, but %s has room", s.EventID,
				shown(s.RequestedUs), shown(s.WindowMs*1000), shown(w*1000)))
		}
	}
	return holes
}

func wantNoHoles(t *testing.T, what string, holes []string) {
	t.Helper()
	if len(holes) > 0 {
		slices.Sort(holes)
		t.Errorf("%s: %d events are later than need be:\n%s", what, len(holes),
			strings.Join(holes[:min(8, len(holes))], "\n"))
	}
}

// crowdTimes are instants, most of them a few that many ask for.
func crowdTimes(rng *rand.Rand, n int) []time.Time {
	times := make([]time.Time, n)
	for i := range times {
		ms := earliestDay + rng.Int64N(4)*3000
		if rng.IntN(3) == 0 {
			ms = earliestDay + rng.Int64N(20_000)
		}
		times[i] = time.UnixMilli(ms)
	}
	return times
}

// A crowd at three servers leaves no window with room behind, whatever becomes of
// the config between two crowds, and whichever server changes it.
func TestCrowdLeavesNoHoles(t *testing.T) {
	eachCrowd(t, kinds(), 3, func(t *testing.T, c *serverCrowd) {
		rng := random.Rand(t, 0xc0)
		max, size := 5+rng.Int64N(10), int64(1000)
		for round := range random.Times(3, 6) {
			switch round % 3 {
			case 1:
				size = earliestSizes[rng.IntN(len(earliestSizes))]
			case 2:
				max = 3 + rng.Int64N(20)
			}
			c.put(t, round%len(c.servers), max, size)
			events := c.assign(t, crowdTimes(rng, random.Times(350, 700)))
			wantNoHoles(t, fmt.Sprintf("round %d, %d in %d ms", round, max, size), c.holes(t, events, max, size))
			if t.Failed() {
				return
			}
		}
	})
}

// Events at one instant and then as many over a minute fill windows of 100: 30 windows,
// and in the long form 60, on all databases, also those of one server alone.
func TestBurstFillsWindowsWithoutHoles(t *testing.T) {
	on := kinds()
	if !random.Long() {
		on = map[string]func(*testing.T) Harness{testenv.Postgres: on[testenv.Postgres]}
	}
	for _, processes := range []int{1, 3}[random.Times(1, 0):] {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			eachCrowd(t, on, processes, func(t *testing.T, c *serverCrowd) {
				const room, size = 100, 4000
				each := random.Times(1500, 3000)
				c.put(t, 0, room, size)
				at := time.UnixMilli(floor(earliestDay, size))
				times := make([]time.Time, 2*each)
				for i := range times {
					times[i] = at
					if i >= each {
						times[i] = at.Add(time.Duration(i-each) * time.Minute / time.Duration(each))
					}
				}
				random.Rand(t, 0xb0).Shuffle(each, func(i, k int) { times[each+i], times[each+k] = times[each+k], times[each+i] })
				events := c.assign(t, times[:each])
				for event := range c.assign(t, times[each:]) {
					events[event] = true
				}
				windows := c.f.slotsOf(t, slots.Series{Scope: c.f.prefix, SizeMs: size})
				if len(windows) != 2*each/room {
					t.Errorf("%d windows are in use, %d would do", len(windows), 2*each/room)
				}
				wantNoHoles(t, "burst", c.holes(t, events, room, size))
			})
		})
	}
}
