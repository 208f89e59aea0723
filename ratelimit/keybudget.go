package ratelimit

import (
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/limit"
)

// A keyBudget is which values of a rule with max_keys have counters of their own, as far as this process has asked
// about them: in about 24 bytes each. Once there are as many as the rule may have, all others share one counter.
type keyBudget struct {
	label  ruleLabel
	most   int64
	shared string // the group of the counter that the others share

	*knownKeys
}

// knownKeys are the values that have counters of their own. All versions of a rule share them.
type knownKeys struct {
	used   atomic.Int64
	others atomic.Int64 // decisions by the counter that the others share
	swept  atomic.Int64 // when idle ones were last looked for, as a limit.Instant
	logged minutely     // that there are others
	shards [16]struct {
		mu      sync.Mutex
		until   map[uint64]limit.Instant // by the hash of a group, when an unused counter of it has expired
		longest time.Duration            // that a counter takes to expire; what is further ahead is of another clock
	}
}

// newKeyBudget returns the budget of a rule; nil if the rule has none. old is that of another version of it, or nil.
func newKeyBudget(r *descriptors.Rule, old *keyBudget, plain bool) *keyBudget {
	if r.MaxKeys == 0 {
		return nil
	}
	k := &keyBudget{label: ruleLabel{r.Domain, r.Path}, most: r.MaxKeys, shared: r.OthersGroup(plain),
		knownKeys: new(knownKeys)}
	if old != nil && old.shared == k.shared { // else it is another rule with this label
		k.knownKeys = old.knownKeys
	}
	return k
}

var keySeed = maphash.MakeSeed()

// admits reports whether a group has a counter of its own. A group that takes units keeps it for the given time, if
// there is room.
func (k *keyBudget) admits(group string, takes bool, now limit.Instant, life time.Duration) bool {
	if takes && k.used.Load() >= k.most {
		k.sweep(now, life)
	}
	hash := maphash.String(keySeed, group)
	s := &k.shards[hash%uint64(len(k.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.longest = max(s.longest, life)
	switch until, known := s.until[hash]; {
	case known && takes:
		s.until[hash] = max(min(until, now.Add(s.longest)), now.Add(life))
		return true
	case known || !takes:
		return known || k.used.Load() < k.most
	case k.used.Add(1) > k.most:
		k.used.Add(-1)
		return false
	}
	if s.until == nil {
		s.until = map[uint64]limit.Instant{}
	}
	s.until[hash] = now.Add(life)
	return true
}

// renewed extends the time for which the value of a lease has a counter of its own.
func (e *engine) renewed(domain, rule string, key *limit.Key, life time.Duration) {
	if k := e.rules.Load().budgets[ruleLabel{domain, rule}]; k != nil && key.Group != k.shared {
		const takes = true // units of its lease
		k.admits(key.Group, takes, e.conf.Now(), life)
	}
}

// sweep drops values that nobody uses any more, unless it did so a moment ago.
func (k *keyBudget) sweep(now limit.Instant, life time.Duration) {
	last := k.swept.Load()
	if limit.Instant(last) <= now && now < limit.Instant(last).Add(max(life/8, time.Second)) ||
		!k.swept.CompareAndSwap(last, int64(now)) {
		return
	}
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		was := len(s.until)
		maps.DeleteFunc(s.until, func(hash uint64, until limit.Instant) bool {
			s.until[hash] = min(until, now.Add(s.longest)) // the clock has stepped back
			return until <= now
		})
		k.used.Add(int64(len(s.until) - was))
		s.mu.Unlock()
	}
}

// budgetKey gives a decision the counter that new values share if its rule has as many keys as it may have. Values
// with a policy of their own always have a counter of their own: the author of policies bounds how many there are.
func (b *Batch) budgetKey(d *Decision) {
	k := d.view.keys
	if k == nil || d.policies != nil && d.decider == decidedByKey ||
		k.admits(d.match.Group, d.Cost > 0, b.engine.conf.Now(), d.view.life) {
		return
	}
	d.match.Group = k.shared
	k.others.Add(1)
	if d.Cost > 0 && served(&b.engine.conf) && k.logged.allow(time.Now()) {
		b.engine.conf.Log.Warn("a rule has as many keys as its max_keys allows; new values share one counter",
			"domain", k.label.domain, "rule", k.label.path, "max_keys", k.most)
	}
}

// keyBudgets returns the budgets that have series: as many as maxRuleSeries, of each label one.
func (rs *ruleset) keyBudgets() (list []*keyBudget) {
	for _, v := range rs.views {
		if v != nil && v.keys != nil && rs.budgets[v.keys.label] == v.keys && len(list) < maxRuleSeries {
			list = append(list, v.keys)
		}
	}
	return list
}
