package leases

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/headgate-rls/headgate/limit"
)

const (
	secretClaim = "lease-secret"
	secretLife  = 30 * 24 * time.Hour // after the last replica has run
)

// exchangePresence reports which proxies this replica has heard from, reads what
// all replicas have reported, and notes the proxies that are gone.
func (t *Tracker) exchangePresence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(t.conf.OwnerGrace/2, t.conf.Timeout))
	defer cancel()
	registry := t.conf.Registry
	if err := t.agreeOnSecret(ctx); err != nil {
		t.owners.restartSilences()
		return err
	}
	if t.idle() {
		return nil
	}
	asked := t.wall()
	rows, err := registry.List(ctx, ownersTable)
	if err != nil {
		t.owners.restartSilences()
		return err
	}
	t.owners.merge(rows, asked, t.wall(), t.every())
	t.mu.Lock()
	t.gone = t.owners.gone(asked, t.me, t.conf.OwnerGrace)
	t.mu.Unlock()
	rows, heard := t.owners.report(t.me)
	left, err := registry.Put(ctx, ownersTable, rows, t.ownerLife())
	t.owners.reported(heard, err != nil, err == nil && left == 0)
	if err != nil {
		t.owners.restartSilences()
	}
	return err
}

// ownerLife is how long an owner stays in the table after the last report: as
// long as it can have leases.
func (t *Tracker) ownerLife() time.Duration { return 2*t.longestLife() + 4*t.conf.OwnerGrace }

// agreeOnSecret signs tokens with the secret that all replicas use: the first
// replica's. If the store has lost the secret, the one in use is put back.
func (t *Tracker) agreeOnSecret(ctx context.Context) error {
	if t.secret == "" {
		return nil
	}
	agreed, err := t.conf.Registry.Claim(ctx, secretClaim, t.secret, secretLife)
	if err == nil && agreed != t.secret {
		t.secret = agreed
		t.conf.Signer.Prefer([]byte(agreed))
	}
	return err
}

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
