package insight

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

// Paces of what a flood could overrun.
const (
	refusedNewcomers = 5_000 // keys in a second
	nearNewcomers    = 1_000
	nearEvery        = 100 // µs

	numRefusals   = 1000
	recordedBurst = 300
	recordedEvery = 300_000 // µs: a flood leaves the refusals of minutes, not those of a moment
)

// nearPart is how much of a limit must be left for a key to count as near it: a part in nearPart.
const nearPart = 4

// A Watch keeps how many requests there are, who is refused, who is near a limit, the last refusals, and the last
// reloads. It may be used concurrently, and goes into [ratelimit.Config].Sinks.
type Watch struct {
	Traffic Traffic

	refused *keys // by refusals
	near    *keys // by the used part of the limit, in thousandths, at its largest

	recorded, first pace // which refusals the ring has
	nears           pace // which requests that leave little are looked at

	mu   sync.Mutex
	ring []Refusal // up to numRefusals, and then in a circle
	next int       // the oldest

	reloads []Reload // the oldest first
}

// NewWatch returns a watch that has seen nothing.
func NewWatch() *Watch {
	return &Watch{
		refused: newKeys(refusedNewcomers, false), near: newKeys(nearNewcomers, true),
		nears:    pace{every: nearEvery, burst: numKeys},
		recorded: pace{every: recordedEvery, burst: recordedBurst}, first: pace{every: recordedEvery, burst: recordedBurst},
	}
}

// A Refusal is a request that was refused.
type Refusal struct {
	At        time.Time
	Key       string // as descriptors.Name has it
	Cut       bool   // Key is only the beginning, because it is long
	Rule      string // the limit's name
	Limit     *limit.Limit
	Wait      time.Duration // limit.Never: no wait helps
	Cause     string        // what refused: limit, tier, or why a failure policy did
	Tier      string
	RequestID string // empty if the caller did not send one
}

// Refuse counts a refusal. kept: the key was kept, else [Watch.AddRefused] is to follow. record says whether to have
// the refusal recorded, of as many as there is time for.
func (w *Watch) Refuse(rule, group string, at int64) (kept, record bool) {
	return w.refused.hit(rule, group, at, 1), w.recorded.allow(at)
}

// AddRefused counts the first refusal of a key, and reports whether to have it recorded.
func (w *Watch) AddRefused(s *Seen) (record bool) { return w.refused.add(s, 1) && w.first.allow(s.At) }

// Record adds a refusal to the last ones. What r has beside the cause, the wait and the request is s's.
func (w *Watch) Record(s *Seen, r Refusal) {
	r.At, r.Rule, r.Limit, r.RequestID = time.UnixMicro(s.At), s.Rule, s.Limit, strings.Clone(r.RequestID)
	r.Key, r.Cut = nameOf(s.Domain, s.Entries)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ring) < numRefusals {
		w.ring = append(w.ring, r)
		return
	}
	w.ring[w.next] = r
	w.next = (w.next + 1) % numRefusals
}

// Approach notes a request that passes and leaves little: above 10,000/s only some. It returns false if the key is not
// kept: then [Watch.AddNear] is to follow.
func (w *Watch) Approach(rule, group string, at int64, l *limit.Limit, remaining int64) bool {
	return !w.nears.allow(at) || w.near.hit(rule, group, at, usedPart(l, remaining))
}

// AddNear notes the first such request of a key.
func (w *Watch) AddNear(s *Seen, remaining int64) { w.near.add(s, usedPart(s.Limit, remaining)) }

// usedPart is how much of a limit is used, in thousandths.
func usedPart(l *limit.Limit, remaining int64) uint32 {
	capacity := max(l.Capacity(), 1)
	return uint32((capacity - max(remaining, 0)) * 1000 / capacity)
}

// Refused returns the n keys with the most refusals in the last minutes. exact is false if there were more keys than
// could be counted.
func (w *Watch) Refused(now int64, minutes, n int) (list []Stat, exact bool) {
	return w.refused.top(now, minutes, n)
}

// Near returns the n keys that had the least left in the last minutes. Their figures are the used part of the limit, in
// thousandths, at its largest.
func (w *Watch) Near(now int64, minutes, n int) (list []Stat, exact bool) {
	return w.near.top(now, minutes, n)
}

// Refusals returns the last refusals, the newest first.
func (w *Watch) Refusals() []Refusal {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Concat(w.ring[w.next:], w.ring[:w.next])
	slices.Reverse(list)
	return list
}
