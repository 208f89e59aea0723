package insight

import (
	"cmp"
	"hash/maphash"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// Bounds of keys. See TestWatchIsSmall.
const (
	numKeys = 256
	ways    = 8   // keys with one hash
	maxName = 256 // of a key, in bytes
)

// A Seen is a descriptor that a limit has decided about.
type Seen struct {
	Domain  string
	Entries []descriptors.Entry
	Rule    string // the limit's name: "domain/path:name"
	Limit   *limit.Limit
	Group   string // of its counter
	At      int64  // in µs since 1970
}

// keys keeps the keys with the largest figures by the minute, in fixed memory. It is Space-Saving, as Metwally and
// others describe it, with a figure for each minute: a key without room takes the place of the one with the smallest
// figures of its eight, and inherits these as its error, so that what counts most is never lost to many that count
// little. It may be used concurrently.
type keys struct {
	sets [numKeys / ways]struct {
		hashes [ways]atomic.Uint64 // 0: no key
		keys   [ways]atomic.Pointer[key]
	}
	seed      maphash.Seed
	newcomers pace         // keys that come
	leftOut   atomic.Int64 // the minute in which one could not
	// peaks: figures are the largest that were seen, and not counted.
	peaks bool

	mu sync.Mutex // held to add a key
}

// A key is a counter that is kept. Only its figures change.
type key struct {
	rule     string // the limit's name
	groupLen int
	name     string // as descriptors.Name has it
	cut      bool   // the name is only a part
	limit    *limit.Limit
	figures  minutes
	errors   minutes // what of the figures the key has inherited
}

// newKeys returns an empty table, which so many keys may enter in a second.
func newKeys(newcomers int64, peaks bool) *keys {
	return &keys{seed: maphash.MakeSeed(), peaks: peaks, newcomers: pace{every: 1_000_000 / newcomers, burst: numKeys}}
}

// hit adds one to the figure of a key, or raises it. It returns false if the key is not kept.
func (k *keys) hit(rule, group string, at int64, figure uint32) bool {
	e := k.find(maphash.String(k.seed, group)|1, rule, group)
	if e != nil {
		k.note(e, minuteOf(at), figure)
	}
	return e != nil
}

func (k *keys) note(e *key, minute, figure uint32) {
	if k.peaks {
		e.figures.raise(minute, figure)
	} else {
		e.figures.add(minute)
	}
}

func (k *keys) find(hash uint64, rule, group string) *key {
	set := &k.sets[hash>>32%uint64(len(k.sets))]
	for i := range set.hashes {
		if set.hashes[i].Load() != hash {
			continue
		}
		// That groups of one length have one hash, whose seed nobody knows, does not happen.
		if e := set.keys[i].Load(); e != nil && e.rule == rule && e.groupLen == len(group) {
			return e
		}
	}
	return nil
}

// add is hit for a key that was not kept. It reports whether it is now.
func (k *keys) add(s *Seen, figure uint32) bool {
	minute := minuteOf(s.At)
	if !k.newcomers.allow(s.At) {
		if k.leftOut.Load() != int64(minute) {
			k.leftOut.Store(int64(minute))
		}
		return false
	}
	e := k.enter(s, minute, figure)
	if e != nil {
		k.note(e, minute, figure)
	}
	return e != nil
}

// enter makes room for a key; nil if all others there are larger than its peak.
func (k *keys) enter(s *Seen, minute, peak uint32) *key {
	hash := maphash.String(k.seed, s.Group) | 1
	made := &key{rule: s.Rule, groupLen: len(s.Group), limit: s.Limit}
	made.name, made.cut = nameOf(s.Domain, s.Entries)
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.find(hash, s.Rule, s.Group); e != nil {
		return e
	}
	set := &k.sets[hash>>32%uint64(len(k.sets))]
	place, least := 0, int64(-1)
	for i := range set.keys {
		old := set.keys[i].Load()
		if old == nil {
			place, least = i, -1
			break
		}
		if rank := k.rank(old, minute); least < 0 || rank < least {
			place, least = i, rank
		}
	}
	switch {
	case least < 0:
	case !k.peaks:
		made.inherit(set.keys[place].Load())
	case least > int64(peak):
		return nil
	}
	set.keys[place].Store(made)
	set.hashes[place].Store(hash)
	return made
}

// rank is what decides which key has to go.
func (k *keys) rank(e *key, minute uint32) int64 {
	sum, largest := e.figures.sum(minute, rankMinutes)
	if k.peaks {
		return largest
	}
	return sum
}

// inherit takes the figures of a key that goes, each in its minute: so they end as they would have.
func (e *key) inherit(old *key) {
	for i := range old.figures {
		v := old.figures[i].Load()
		e.figures[i].Store(v)
		e.errors[i].Store(v)
	}
}

// nameOf returns the name of a descriptor, or a part of one that is long.
func nameOf(domain string, entries []descriptors.Entry) (name string, cut bool) {
	size := len(domain)
	for i := range entries {
		size += len(entries[i].Key) + len(entries[i].Value) + 2
	}
	if size <= maxName {
		if name = descriptors.Name(domain, entries); len(name) <= maxName {
			return name, false
		}
	}
	const most = maxName/3 - 4 // what all would have to be escaped of
	left, parts := most, []descriptors.Entry(nil)
	part := func(text string) string {
		text = text[:min(len(text), max(left, 0))]
		left -= len(text) + 1
		return text
	}
	domain = part(domain)
	for i := 0; i < len(entries) && left > 0; i++ {
		parts = append(parts, descriptors.Entry{Key: part(entries[i].Key), Value: part(entries[i].Value)})
	}
	return descriptors.Name(domain, parts) + "…", true
}

// A Stat is what is kept of a key.
type Stat struct {
	Name string // as descriptors.Name has it
	Cut  bool   // Name is only the beginning, because it is long
	Rule string // the limit's name
	// Limit is the one that was in force when the key was first seen.
	Limit *limit.Limit
	// Figure is at least so large, and at most so much larger: refusals that were counted for others before.
	Figure, Error int64
	// Minutes are the figures of the last 15 minutes without their errors, the oldest first, this minute's last.
	Minutes []int64
}

// top returns the n keys with the largest figures in the last minutes, the largest first. exact is false if there were
// more keys than could be looked at.
func (k *keys) top(now int64, window, n int) (list []Stat, exact bool) {
	minute := minuteOf(now)
	for i := range k.sets {
		for j := range k.sets[i].keys {
			e := k.sets[i].keys[j].Load()
			if e == nil {
				continue
			}
			if s := k.stat(e, minute, window); s.Figure > 0 {
				list = append(list, s)
			}
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := &list[i], &list[j]
		return cmp.Or(cmp.Compare(b.Figure, a.Figure), strings.Compare(a.Name, b.Name), strings.Compare(a.Rule, b.Rule)) < 0
	})
	last := k.leftOut.Load() // of another clock if it is ahead
	return list[:min(n, len(list))], last == 0 || last > int64(minute) || int64(minute)-last >= int64(window)
}

func (k *keys) stat(e *key, minute uint32, window int) Stat {
	s := Stat{Name: e.name, Cut: e.cut, Rule: e.rule, Limit: e.limit, Minutes: make([]int64, numMinutes-1)}
	sum, largest := e.figures.sum(minute, window)
	s.Figure = largest
	if !k.peaks {
		s.Error, _ = e.errors.sum(minute, window)
		s.Figure = sum - s.Error
	}
	for ago := range s.Minutes {
		f := int64(e.figures.figure(minute, uint32(ago))) - int64(e.errors.figure(minute, uint32(ago)))
		s.Minutes[len(s.Minutes)-1-ago] = f
	}
	return s
}
