package metrics

import (
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// A Counter counts up. A nil one counts nothing. Cores that write the same word wait for each other, so a counter that
// counts a lot has lanes, and is the sum of them.
type Counter struct {
	n     atomic.Int64
	lanes atomic.Pointer[[]lane] // nil until n is enough
}

type lane struct {
	n atomic.Int64
	_ [56]byte // the next one is on another cache line
}

// enough is the count from which lanes are worth their memory.
const enough = 100_000

// MaxLanes is the largest number of lanes.
const MaxLanes = 16

var (
	numLanes = min(1<<bits.Len(uint(runtime.GOMAXPROCS(0))), MaxLanes)
	nextLane atomic.Uint32
)

// NextLane returns the number of a lane, each in turn. A caller keeps it in an object of a sync.Pool, so that a core
// mostly uses its own lane.
func NextLane() int { return int(nextLane.Add(1)) & (numLanes - 1) }

// Inc adds one.
func (c *Counter) Inc() { c.Add(1) }

// Add adds n.
func (c *Counter) Add(n int64) {
	if c != nil {
		c.n.Add(n)
	}
}

// AddIn is Add in a lane, for what is counted often.
func (c *Counter) AddIn(in int, n int64) {
	if c == nil {
		return
	}
	if lanes := c.lanes.Load(); lanes != nil {
		(*lanes)[in].n.Add(n)
	} else if c.n.Add(n) > enough {
		made := make([]lane, numLanes)
		c.lanes.CompareAndSwap(nil, &made)
	}
}

// Value returns the count.
func (c *Counter) Value() int64 {
	n := c.n.Load()
	if lanes := c.lanes.Load(); lanes != nil {
		for i := range *lanes {
			n += (*lanes)[i].n.Load()
		}
	}
	return n
}

// Row returns the row of a counter without labels.
func (c *Counter) Row(name, help string) Row { return CounterOf(name, help, c.Value) }

// labelSet are the values of labels, as the key of a map. No metric of ours has more of them.
type labelSet [4]string

func setOf(values []string) (set labelSet) {
	copy(set[:], values)
	return set
}

// Counters are the counters of one metric with labels. If the values of the last label are known, a series has a
// counter for each of them, else it has one. [Counters.Row] is called before any other method.
type Counters struct {
	// Silent reports whether a counter is not shown while it is 0, by the number of the last label's value. Nil shows
	// all: what is to raise an alarm the first time must have been there before.
	Silent func(value int) bool

	labels Labels
	last   []string // the values of the last label, if they are known
	open   int      // how many labels are before it

	mu     sync.Mutex
	series map[labelSet]*Series
}

// A Series has the counters under the same labels.
type Series struct {
	labels   labelSet
	holders  int // guarded by Counters.mu
	counters []Counter
}

// At returns the counter of value i of the last label. That of a nil series counts nothing.
func (s *Series) At(i int) *Counter {
	if s == nil {
		return nil
	}
	return &s.counters[i]
}

// Row names the counters and returns their row. Where all values of the labels are known, there are all series.
func (c *Counters) Row(name, help string, labels Labels) Row {
	c.labels, c.open, c.series = labels, len(labels), map[labelSet]*Series{}
	if n := len(labels); n > 0 && labels[n-1].Values != nil {
		c.open, c.last = n-1, labels[n-1].Values
	}
	for _, values := range combinations(labels[:c.open]) {
		c.Hold(values...)
	}
	return Row{Name: name, Help: help, Kind: IsCounter, Labels: labels, Each: c.each}
}

// combinations returns every combination of the values of labels, none if the values of one are not known.
func combinations(labels Labels) [][]string {
	all := [][]string{nil}
	for _, l := range labels {
		var longer [][]string
		for _, begin := range all {
			for _, v := range l.Values {
				longer = append(longer, append(slices.Clone(begin), v))
			}
		}
		all = longer
	}
	return all
}

// Hold returns the series under the labels but a last one whose values are known, and makes it if it is not there.
// It stays until each Hold has its [Counters.Drop].
func (c *Counters) Hold(labels ...string) *Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.find(labels)
	s.holders++
	return s
}

func (c *Counters) find(labels []string) *Series {
	key := setOf(labels)
	s := c.series[key]
	if s == nil {
		s = &Series{labels: key, counters: make([]Counter, max(len(c.last), 1))}
		c.series[key] = s
	}
	return s
}

// Find returns the existing series under labels, or nil. Unlike Hold it makes none and does not keep it.
func (c *Counters) Find(labels ...string) *Series {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.series[setOf(labels)]
}

// Drop ends one Hold of s. The last Drop removes the series: later counts in it are not reported. A nil s is ignored.
func (c *Counters) Drop(s *Series) {
	if s == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.holders--; s.holders == 0 {
		delete(c.series, s.labels)
	}
}

// Of returns the counter under labels, which is there for good.
func (c *Counters) Of(labels ...string) *Counter {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.find(labels[:c.open])
	s.holders = max(s.holders, 1)
	if c.last == nil {
		return s.At(0)
	}
	return s.At(slices.Index(c.last, labels[c.open]))
}

func (c *Counters) each(emit Emit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.series {
		for i := range s.counters {
			n := s.counters[i].Value()
			if n == 0 && c.Silent != nil && c.Silent(i) {
				continue
			}
			labels := s.labels[:c.open:c.open]
			if c.last != nil {
				labels = append(labels, c.last[i])
			}
			emit(labels, float64(n), nil)
		}
	}
}

// A Bound is how many series of some kind there may be.
type Bound struct {
	Most int64
	used atomic.Int64
}

// Take takes room for n series, and reports whether there is some.
func (b *Bound) Take(n int) bool {
	if b.used.Add(int64(n)) <= b.Most {
		return true
	}
	b.GiveBack(n)
	return false
}

// GiveBack ends a Take.
func (b *Bound) GiveBack(n int) { b.used.Add(-int64(n)) }

// Free reports whether there is room for a series.
func (b *Bound) Free() bool { return b.used.Load() < b.Most }
