package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/test/testenv"
)

// BenchmarkInstructions counts the instructions that Redis executes for a request, by callgrind: the same count
// whatever else the machine does. It runs each row once, and needs valgrind:
//
//	go test -run xxx -bench Instructions -benchtime 1x ./backends/redis
func BenchmarkInstructions(b *testing.B) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		b.Skip("valgrind is not installed")
	}
	s := startCounted(b)
	ctx := context.Background()
	for _, row := range instructionRows() {
		h := s.open(b, row.layout)
		take := func(n int) {
			out := make([]limit.Verdict, row.slice)
			for i := range n {
				h.Take(ctx, row.requests(i, s.at(row)), out)
				if out[0].Err != nil {
					b.Fatal(out[0].Err)
				}
			}
		}
		b.Run(row.name, func(b *testing.B) {
			for range b.N {
				if err := h.client.FlushAll(ctx).Err(); err != nil {
					b.Fatal(err)
				}
				take(64)
				s.count(b)
				take(64)
				b.ReportMetric(float64(s.count(b))/float64(64*row.slice), "instructions/req")
			}
			b.ReportMetric(0, "ns/op")
		})
		h.Close()
	}
}

// A countedRedis is a Redis under callgrind.
type countedRedis struct {
	pid    int
	socket string
	dumps  string // what their names begin with
	number int    // of dumps
}

func startCounted(b *testing.B) *countedRedis {
	dir := b.TempDir()
	s := &countedRedis{socket: filepath.Join(dir, "redis"), dumps: filepath.Join(dir, "counts")}
	cmd := exec.Command("valgrind", "--tool=callgrind", "--callgrind-out-file="+s.dumps,
		testenv.Require(b, testenv.Redis), "--port", "0", "--unixsocket", s.socket, "--save", "", "--hz", "1")
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	s.pid = cmd.Process.Pid
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	testenv.Eventually(b, time.Minute, "Redis listens", func() string {
		if _, err := os.Stat(s.socket); err != nil {
			return err.Error()
		}
		return ""
	})
	return s
}

func (s *countedRedis) open(b *testing.B, layout Layout) *Backend {
	c := DefaultConfig()
	c.Unix, c.Layout, c.Timeout, c.DialTimeout = s.socket, layout, time.Minute, time.Minute
	h, err := Open(context.Background(), c, nil)
	if err != nil {
		b.Fatal(err)
	}
	return h
}

func (s *countedRedis) at(row instructionRow) limit.Instant {
	if row.layout == Envoy {
		return limit.InstantOf(time.Now())
	}
	return 0
}

var totals = regexp.MustCompile(`(?m)^(?:totals|summary): (\d+)`)

// count returns how many instructions have been executed since it was last called.
func (s *countedRedis) count(b *testing.B) int64 {
	s.number++
	if out, err := exec.Command("callgrind_control", "--dump", strconv.Itoa(s.pid)).CombinedOutput(); err != nil {
		b.Fatalf("callgrind_control: %v: %s", err, out)
	}
	var found [][]byte
	testenv.Eventually(b, time.Minute, "callgrind writes its counts", func() string {
		text, _ := os.ReadFile(s.dumps + "." + strconv.Itoa(s.number))
		if found = totals.FindSubmatch(text); found == nil {
			return "no counts are written"
		}
		return ""
	})
	n, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return n
}

type instructionRow struct {
	name     string
	layout   Layout
	slice    int
	requests func(i int, at limit.Instant) []limit.Request
}

func instructionRows() (rows []instructionRow) {
	add := func(name string, layout Layout, slice int, ops func(n int) []limit.Op) {
		rows = append(rows, instructionRow{fmt.Sprintf("%s/slice=%d", name, slice), layout, slice,
			func(i int, at limit.Instant) []limit.Request {
				reqs := make([]limit.Request, slice)
				for j := range reqs {
					reqs[j] = limit.Request{At: at, Ops: ops(i*slice + j)}
				}
				return reqs
			}})
	}
	op := func(spec limit.Spec, group, name string, each bool) limit.Op {
		spec.Window = time.Hour
		return limit.Op{Key: limit.Key{Group: group, Limit: name}, Limit: limit.MustNew(spec), Cost: 1, Each: each}
	}
	counters := func(spec limit.Spec, ops, keys int, each bool) func(int) []limit.Op {
		all := make([][]limit.Op, keys)
		for i := range all {
			for j := range ops {
				all[i] = append(all[i], op(spec, fmt.Sprintf("5:bench2:k%d:user%d", j, i), "r/"+spec.Algorithm.String(), each))
			}
		}
		return func(n int) []limit.Op { return all[n%keys] }
	}
	for _, a := range []limit.Algorithm{limit.FixedWindow, limit.SlidingWindow, limit.TokenBucket, limit.SlidingLog} {
		many := limit.Spec{Algorithm: a, Max: 1_000_000}
		for _, ops := range []int{1, 3} {
			for _, slice := range []int{1, 8, 64} {
				add(fmt.Sprintf("%v/ops=%d", a, ops), List, slice, counters(many, ops, 64, false))
			}
		}
		add(fmt.Sprintf("%v refused/ops=3", a), List, 8, counters(limit.Spec{Algorithm: a, Max: 1}, 3, 8, false))
	}
	fixed := limit.Spec{Algorithm: limit.FixedWindow, Max: 1_000_000}
	add("fixed_window each/ops=3", List, 8, counters(fixed, 3, 64, true))
	add("envoy/ops=1", Envoy, 1, counters(fixed, 1, 64, false))
	add("envoy/ops=3", Envoy, 8, counters(fixed, 3, 64, false))
	choice := func(ops func(n int) []limit.Op) func(int) []limit.Op {
		return func(n int) []limit.Op {
			of := ops(n)
			for i := range of {
				of[i].Choice = limit.Choice{Set: 1, Group: uint8(i)}
			}
			return of
		}
	}
	for _, slice := range []int{1, 8, 64} {
		add("fixed_window, 1 of 2 is chosen", List, slice, choice(counters(fixed, 2, 64, false)))
	}
	buckets := limit.Spec{Algorithm: limit.TokenBucket, Max: 1_000_000}
	add("token_bucket, 1 of 2 is chosen", List, 8, choice(counters(buckets, 2, 64, false)))
	usedUp := counters(fixed, 2, 64, false)
	add("fixed_window, the last of 2 is chosen", List, 8, choice(func(n int) []limit.Op {
		ops := usedUp(n)
		ops[0].Limit = limit.MustNew(limit.Spec{Algorithm: limit.FixedWindow, Max: 1, Window: time.Hour})
		return ops
	}))
	log := limit.Spec{Algorithm: limit.SlidingLog, Max: 10_000}
	add("zset sliding_log/ops=1", ZSet, 8, counters(log, 1, 64, false))
	bucket := limit.Spec{Algorithm: limit.TokenBucket, Max: 1_000_000}
	fixed.Overflow, bucket.Overflow = limit.Debt, limit.Debt
	add("debt/ops=1", List, 8, counters(fixed, 1, 64, true))
	add("bucket debt/ops=1", List, 8, counters(bucket, 1, 64, true))
	fixed.Max, fixed.Overflow = 1, limit.Saturate
	add("saturating/ops=1", List, 8, counters(fixed, 1, 8, true))
	leased := func(spec limit.Spec, slice int) {
		budget := op(spec, "budget", "f", false)
		strict := budget
		budget.Cost, strict.Cost, strict.Limit = 50, 100, budget.Limit.Strict()
		life := op(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight}, "budget", limit.ReservationPart, false)
		add(fmt.Sprintf("reserve, settle %v", spec.Algorithm), List, slice, func(n int) []limit.Op {
			lease := life
			lease.Holder = limit.WithAmount("h"+strconv.Itoa(n/slice/2*slice+n%slice), 100)
			if n/slice%2 == 0 {
				lease.Shadow = true
				return []limit.Op{strict, lease}
			}
			correct := budget
			lease.Cost, lease.Ending, correct.AsOf = -1, limit.EndKnown, limit.AsLeased
			return []limit.Op{lease, correct}
		})
	}
	for _, slice := range []int{1, 8, 64} {
		leased(limit.Spec{Algorithm: limit.FixedWindow, Max: 1 << 40, Overflow: limit.Debt}, slice)
	}
	leased(limit.Spec{Algorithm: limit.TokenBucket, Max: 1 << 30, Overflow: limit.Debt}, 8)
	flight := op(limit.Spec{Algorithm: limit.Concurrency, Max: limit.MaxInFlight}, "flight", "c", false)
	for _, slice := range []int{1, 8, 64} {
		add("acquire, release", List, slice, func(n int) []limit.Op {
			lease := flight
			lease.Holder = "h" + strconv.Itoa(n/slice/2*slice+n%slice)
			lease.Cost = 1 - int64(n/slice%2)*2
			return []limit.Op{lease}
		})
	}
	full := op(limit.Spec{Algorithm: limit.Concurrency, Max: 1}, "full", "c", false)
	add("acquire refused", List, 8, func(n int) []limit.Op {
		lease := full
		lease.Holder = "h" + strconv.Itoa(n)
		return []limit.Op{lease}
	})
	return rows
}
