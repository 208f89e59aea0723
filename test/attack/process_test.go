package attack

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// peak returns the most that was resident, in MiB.
func (g *target) peak() int {
	status := g.read("status")
	for line := range strings.Lines(status) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.Fields(kib)[0])
			if err != nil {
				g.t.Fatal(err)
			}
			return n >> 10
		}
	}
	g.t.Errorf("no VmHWM in %q", status)
	return 0
}

// cpu returns the CPU time of headgate so far.
func (g *target) cpu() time.Duration {
	stat := g.read("stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		g.t.Errorf("cannot understand %q", stat)
		return 0
	}
	const ticksPerSecond = 100 // on every Linux that Go runs on
	ticks := 0
	for _, f := range fields[11:13] { // user and system
		n, err := strconv.Atoi(f)
		if err != nil {
			g.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

func (g *target) read(file string) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", g.hg.PID(), file))
	if err != nil {
		g.t.Fatalf("headgate is gone: %v", err)
	}
	return string(data)
}

// liveHeap collects garbage and returns what is left, in MiB. Two collections
// empty the pools.
func (g *target) liveHeap() int {
	for range 2 {
		if _, err := g.hg.Fetch("/debug/pprof/heap?gc=1"); err != nil {
			g.t.Errorf("collect garbage: %v", err)
		}
	}
	v, err := g.hg.Metrics("go_memstats_heap_alloc_bytes")
	if err != nil {
		g.t.Error(err)
		return 0
	}
	return int(v[0]) >> 20
}
