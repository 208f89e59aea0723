package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate-rls/headgate/internal/wire/transport"
	"github.com/headgate-rls/headgate/internal/wire/unary"
)

// contentionCases are those in which all calls write the same, and one in which
// they do not.
var contentionCases = []string{"memory fixed_window", "memory hot key", "memory denied hot key"}

const (
	contentionProcs   = 16
	contentionCallers = 64 // connections, as it were
	contentionSlice   = 32 // calls of each at a time
)

// contentionTable prints what calls cost and wait when many cores decide at once.
// There is no wire: each caller hands its slices to the handler, as a connection
// does. On a machine with fewer cores a lock is waited for when the system stops
// who holds it. Cache lines that cores take from each other show on as many cores
// only.
func (b *bench) contentionTable(context.Context) error {
	fmt.Printf("\n%d callers with slices of %d calls, without connections, on %d cores\n\n", contentionCallers,
		contentionSlice, runtime.NumCPU())
	fmt.Printf("%-34s %10s %9s %9s %18s  %s\n", "case", "GOMAXPROCS", "calls/s", "CPU µs", "waits, ns per call",
		"most waited for by")
	for _, name := range contentionCases {
		c, err := findCase(name)
		if err != nil {
			return err
		}
		if !b.only.MatchString(name) {
			continue
		}
		for _, procs := range []int{1, contentionProcs} {
			if err := b.measureContention(c, procs); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func (b *bench) measureContention(c benchCase, procs int) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	defer runtime.SetMutexProfileFraction(runtime.SetMutexProfileFraction(10))
	service, m, stop, err := c.service("")
	if err != nil {
		return err
	}
	defer stop()
	handler := transport.Handler(service, transport.ShouldRateLimit, m.Requests("unary"))
	callers := make([][]*unary.Call, contentionCallers)
	if err := fillCallers(c, callers); err != nil {
		return err
	}
	run := func(more func() bool) ([]time.Duration, error) {
		took, err := loop(len(callers), more, func(i int, _ time.Time) error {
			for _, call := range callers[i] {
				call.Reply, call.Err = call.Reply[:0], nil
			}
			if rest := handler.Inline(context.Background(), callers[i]); len(rest) > 0 || len(callers[i][0].Reply) == 0 {
				return fmt.Errorf("%d calls are left, the first is answered by %v", len(rest), callers[i][0].Err)
			}
			return nil
		})
		return make([]time.Duration, len(took)*contentionSlice), err // one for each call
	}
	if _, err := run(after(b.warmUp)); err != nil {
		return err
	}
	waited, by := mutexWait(), mutexWaiters()
	r, err := measureCPU([]int{os.Getpid()}, func() ([]time.Duration, error) { return run(after(b.length)) })
	if err != nil {
		return err
	}
	wait := (mutexWait() - waited).Seconds() * 1e9 / float64(max(len(r.took), 1))
	fmt.Printf("%-34s %10d %9.0f %9.2f %18.1f  %s\n", c.name, procs, r.rate, r.cpu(0), wait,
		mostWaited(by, mutexWaiters()))
	return nil
}

// fillCallers gives each caller its calls.
func fillCallers(c benchCase, callers [][]*unary.Call) error {
	requests := c.requests()
	for i := range callers {
		for j := range contentionSlice {
			message, err := proto.Marshal(requests[(i*contentionSlice+j)%len(requests)])
			if err != nil {
				return err
			}
			callers[i] = append(callers[i], &unary.Call{Message: message})
		}
	}
	return nil
}

// mutexWait returns how long goroutines have waited for mutexes so far.
func mutexWait() time.Duration {
	sample := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(sample)
	return time.Duration(sample[0].Value.Float64() * float64(time.Second))
}

// mutexWaiters returns how much goroutines have waited because of each function of
// headgate that held a mutex, in cycles.
func mutexWaiters() map[string]int64 {
	records := make([]runtime.BlockProfileRecord, 1000)
	n, _ := runtime.MutexProfile(records)
	by := map[string]int64{}
	for i := range records[:n] {
		frames := runtime.CallersFrames(records[i].Stack())
		for {
			f, more := frames.Next()
			if _, name, ok := strings.Cut(f.Function, "headgate-rls/headgate/"); ok {
				by[name] += records[i].Cycles
				break
			}
			if !more {
				break
			}
		}
	}
	return by
}

// mostWaited returns the function whose share has grown most since before.
func mostWaited(before, now map[string]int64) string {
	for name, cycles := range before {
		now[name] -= cycles
	}
	names := slices.SortedFunc(maps.Keys(now), func(a, b string) int { return cmp.Compare(now[b], now[a]) })
	if len(names) == 0 || now[names[0]] == 0 {
		return "-"
	}
	return names[0]
}
