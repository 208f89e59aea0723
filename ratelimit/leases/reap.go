package leases

import (
	"context"
	"encoding/hex"

	"github.com/headgate-rls/headgate/limit"
)

// maxEndings bounds how often one key is asked to end the leases of an owner,
// limit.OwnerSlice at a time.
const maxEndings = 2 * limit.MaxInFlight / limit.OwnerSlice

// reap ends the leases of an owner that is gone, under all keys where requests
// are in flight. One replica does it, and another one if that fails.
func (t *Tracker) reap(ctx context.Context, gone *owner) error {
	registry := t.conf.Registry
	who, err := registry.Claim(ctx, "end/"+hex.EncodeToString(gone.id[:]), t.me, 2*t.conf.OwnerGrace)
	if err != nil || who != t.me || !t.owners.stillGone(gone) {
		return err
	}
	all, ops := t.tally.questions(limit.Op{Cost: -1, Holder: string(gone.id[:]), Ending: limit.EndOwner})
	var list []*entry
	n := 0
	for i, q := range all {
		if t.tally.countOf(q.entry) > 0 {
			list, ops[n] = append(list, q.entry), ops[i]
			n++
		}
	}
	ended, err := t.reapKeys(ctx, list, ops[:n])
	if err == nil {
		if err = registry.Drop(ctx, ownersTable, []string{ownerRow + string(gone.id[:])}); err == nil {
			t.owners.removeGone(gone)
		}
	}
	t.conf.Log.Warn("proxy gone: no replica heard from it within the grace time; ending its leases",
		"owner", gone.Name, "peer", gone.Peer, "grace", t.conf.OwnerGrace, "ended", ended, "error", err)
	return err
}

// reapKeys repeats each op, which is about an entry of list, until nothing is
// left for it to end. It returns how many leases were ended.
func (t *Tracker) reapKeys(ctx context.Context, list []*entry, ops []limit.Op) (ended int64, err error) {
	for try := 0; len(ops) > 0 && try < maxEndings && err == nil; try++ {
		left := 0
		err = t.store.takeInBatches(ctx, ops, func(from int, out []limit.Verdict) {
			for i := range out {
				e := list[from+i]
				n := t.tally.takeReaped(e, &out[i])
				ended += n
				t.conf.Metrics.Lease(e.of.domain, e.of.rule).At(int(Reaped)).Add(n)
				if rest, more := ops[from+i].Rest(&out[i]); more {
					list[left], ops[left] = e, rest
					left++
				}
			}
		})
		list, ops = list[:left], ops[:left]
	}
	return ended, err
}
