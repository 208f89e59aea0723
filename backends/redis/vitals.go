package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate-rls/headgate/limit"
)

// vitals are what servers say of themselves in INFO.
type vitals struct {
	ticks   int
	looking atomic.Bool

	mu    sync.Mutex
	known map[string]vital // by the server's address; also of masters that did not answer the last time
	Vitals
}

// Vitals are figures of the servers that were asked last.
type Vitals struct {
	MemoryUsed, MemoryMax int64   // bytes, of all masters; MemoryMax is 0 if there is no bound
	Fullest               float64 // the part of its memory that the fullest master uses, 0 without a bound
	Evicted               int64   // keys, since the start of this process
	Changes               int64   // other servers, other roles and flushes seen since then
	Refused               bool    // the user may not ask
}

// A vital is what one server says.
type vital struct {
	run, role          string
	used, max, evicted int64
	flushes            int64 // FLUSHALL and FLUSHDB
	warnings           []string
}

// vitalsEvery is after how many seconds servers are asked again.
const vitalsEvery = 15

// Sweep, called once a second, has the servers be asked for their figures from time to time.
func (b *Backend) Sweep(limit.Instant) {
	if b.vitals.ticks++; b.vitals.ticks%vitalsEvery == 0 {
		b.look()
	}
}

// look asks the servers in the background how they are, and logs what is new. A proxy that does not know HELLO would
// close the connection.
func (s *servers) look() {
	if s.greeting.plain.Load() {
		return
	}
	if !s.vitals.looking.CompareAndSwap(false, true) {
		return
	}
	s.inBackground("look", func() {
		defer s.vitals.looking.Store(false)
		ctx, cancel := context.WithTimeout(s.closing, 5*time.Second)
		defer cancel()
		s.note(askVitals(ctx, s.client))
	})
}

// askVitals asks the masters that client reaches. Those that do not answer are silent; err is why.
func askVitals(ctx context.Context, client redis.UniversalClient) (found map[string]vital, silent []string, err error) {
	var mu sync.Mutex
	found = map[string]vital{}
	err = eachMaster(ctx, client, func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "all").Result() // with commandstats
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			silent = append(silent, node.Options().Addr)
			return err
		}
		found[node.Options().Addr] = vitalOf(parseInfo(info))
		return nil
	})
	return found, silent, err
}

func vitalOf(info map[string]string) vital {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64) // a server that does not say it has none
		return n
	}
	return vital{run: info["run_id"], role: info["role"], used: number("used_memory"), max: number("maxmemory"),
		evicted: number("evicted_keys"), flushes: calls(info["cmdstat_flushall"]) + calls(info["cmdstat_flushdb"]),
		warnings: warningsOf(info)}
}

// calls reads how often a command was called, as in "calls=2,usec=31,usec_per_call=15.50".
func calls(stats string) int64 {
	number, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
	n, _ := strconv.ParseInt(number, 10, 64)
	return n
}

// note keeps what servers have said, and logs what is new.
func (s *servers) note(found map[string]vital, silent []string, err error) {
	v := &s.vitals
	v.mu.Lock()
	defer v.mu.Unlock()
	refused := err != nil && strings.Contains(err.Error(), "NOPERM")
	if refused && !v.Refused {
		s.log.Warn("the user of Redis may not ask INFO: there are no figures of its memory, and no warnings of evictions",
			"redis", s.cfg)
	}
	v.Refused = refused
	if len(found) == 0 {
		return
	}
	v.MemoryUsed, v.MemoryMax, v.Fullest = 0, 0, 0
	for addr, now := range found {
		v.MemoryUsed += now.used
		if now.max > 0 {
			v.MemoryMax += now.max
			v.Fullest = max(v.Fullest, float64(now.used)/float64(now.max))
		}
		was, seen := v.known[addr]
		s.compare(addr, was, now, seen)
	}
	for _, addr := range silent { // it may come back without its data
		if was, seen := v.known[addr]; seen {
			found[addr] = was
		}
	}
	v.known = found
}

// compare logs what has changed of a server since the last look.
func (s *servers) compare(addr string, was, now vital, seen bool) {
	v := &s.vitals
	for _, w := range now.warnings {
		if !slices.Contains(was.warnings, w) {
			s.log.Warn("a setting of Redis can break limits", "warning", "Redis at "+addr+": "+w, "redis", s.cfg)
		}
	}
	if !seen {
		return
	}
	evicted := now.evicted - was.evicted
	if was.run != now.run || was.role != now.role {
		v.Changes++
		s.log.Warn("another Redis answers, or its role has changed: its counts may be older", "address", addr,
			"role", now.role, "before", was.role, "other", was.run != now.run)
		evicted = now.evicted
	} else if now.flushes > was.flushes {
		v.Changes++
		s.log.Warn("somebody has emptied Redis, or one of its databases: the limits of its clients begin again",
			"address", addr, "flushes", now.flushes-was.flushes)
	}
	if evicted > 0 {
		v.Evicted += evicted
		s.log.Warn("Redis evicts keys: limits of clients begin again", "address", addr, "keys", evicted,
			"used_bytes", now.used, "max_bytes", now.max)
	}
}

// Vitals returns what the servers have said of themselves when they were last asked.
func (b *Backend) Vitals() Vitals {
	b.vitals.mu.Lock()
	defer b.vitals.mu.Unlock()
	return b.vitals.Vitals
}
