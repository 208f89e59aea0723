package ratelimit

import (
	"hash/maphash"
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
	life   limit.Instant // after which a counter that nobody uses is as good as none
	shared string        // the group of the counter that the others share

	used     atomic.Int64
	others   atomic.Int64 // decisions by the counter that the others share
	swept    atomic.Int64 // when idle ones were last looked for, as a limit.Instant
	reported minutely
	shards   [keyShards]keyShard
}

const keyShards = 16

type keyShard struct {
	mu   sync.Mutex
	last map[uint64]limit.Instant // of values, by the hash of their group
}

// newKeyBudget returns the budget of a rule; nil if the rule has none. It keeps what another version of the rule, which
// may be nil, knows.
func newKeyBudget(r *descriptors.Rule, old *keyBudget, plain bool) *keyBudget {
	if r.MaxKeys == 0 {
		return nil
	}
	if old == nil {
		old = new(keyBudget)
	}
	k := &keyBudget{label: ruleLabel{r.Domain, r.Path}, most: r.MaxKeys, shared: r.OthersGroup(plain)}
	for _, l := range LimitLabels(r) {
		k.life = max(k.life, limit.Instant(lifeOf(l.Limit).Microseconds()))
	}
	for i := range k.shards {
		s, was := &k.shards[i], &old.shards[i]
		was.mu.Lock()
		s.last = make(map[uint64]limit.Instant, len(was.last))
		for group, last := range was.last {
			s.last[group] = last
		}
		was.mu.Unlock()
		k.used.Add(int64(len(s.last)))
	}
	k.others.Store(old.others.Load())
	return k
}

// lifeOf returns after which time a counter that nobody uses is as good as none.
func lifeOf(l *limit.Limit) time.Duration {
	if l.Is(limit.Refilled) {
		return l.RefillTime(l.Capacity() + l.Below())
	}
	windows := 2 + l.Below()/max(l.Max(), 1) // a sliding window looks back at the one before
	if windows > int64(limit.MaxWindow/l.Window()) {
		return limit.MaxWindow
	}
	return time.Duration(windows) * l.Window()
}

var keySeed = maphash.MakeSeed()

// admits reports whether a group has a counter of its own. One that takes units gets it if there is room.
func (k *keyBudget) admits(group string, takes bool, now limit.Instant) bool {
	hash := maphash.String(keySeed, group)
	s := &k.shards[hash%keyShards]
	if s.admits(k, hash, takes, now) {
		return true
	}
	return takes && k.sweep(now) && s.admits(k, hash, takes, now)
}

func (s *keyShard) admits(k *keyBudget, hash uint64, takes bool, now limit.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[hash]; ok {
		if takes && now > last {
			s.last[hash] = now
		}
		return true
	}
	switch {
	case !takes:
		return k.used.Load() < k.most
	case k.used.Add(1) > k.most:
		k.used.Add(-1)
		return false
	}
	s.last[hash] = now
	return true
}

// sweep drops values that nobody uses any more, unless it did so a moment ago. It reports whether there is room then.
func (k *keyBudget) sweep(now limit.Instant) bool {
	last := k.swept.Load()
	if int64(now)-last < max(int64(k.life)/8, time.Second.Microseconds()) || !k.swept.CompareAndSwap(last, int64(now)) {
		return false
	}
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		for hash, at := range s.last {
			if at+k.life <= now {
				delete(s.last, hash)
				k.used.Add(-1)
			}
		}
		s.mu.Unlock()
	}
	return k.used.Load() < k.most
}

// budgetKey gives a decision the counter that new values share if its rule has as many keys as it may have. Values
// with a policy of their own always have a counter of their own: who writes policies bounds how many there are.
func (b *Batch) budgetKey(d *Decision) {
	k := d.view.keys
	if k == nil || d.policies != nil && d.decider == decidedByKey ||
		k.admits(d.match.Group, d.Cost > 0, b.engine.conf.Now()) {
		return
	}
	d.match.Group = k.shared
	if k.others.Add(1); d.Cost > 0 && served(&b.engine.conf) && k.reported.allow(time.Now()) {
		b.engine.conf.Log.Warn("a rule has as many keys as its max_keys allows; new values share one counter",
			"domain", k.label.domain, "rule", k.label.path, "max_keys", k.most)
	}
}

// budgets returns the budgets of some of the rules.
func (rs *ruleset) budgets(of []*descriptors.Rule) map[ruleLabel]*keyBudget {
	all := map[ruleLabel]*keyBudget{}
	for _, r := range of {
		if v := rs.views[r.ID]; v != nil && v.keys != nil {
			all[ruleLabel{r.Domain, r.Path}] = v.keys
		}
	}
	return all
}

// keyBudgets returns the budgets that have series: as many as maxRuleSeries, of each label one.
func (rs *ruleset) keyBudgets() (list []*keyBudget) {
	seen := map[ruleLabel]bool{}
	for _, v := range rs.views {
		if v != nil && v.keys != nil && !seen[v.keys.label] && len(list) < maxRuleSeries {
			seen[v.keys.label] = true
			list = append(list, v.keys)
		}
	}
	return list
}
