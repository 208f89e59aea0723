package leases

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/headgate-rls/headgate/backends"
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
	switch {
	case err != nil:
	case backends.LaterRow(agreed):
		t.warn("a later version of headgate keeps the secret of lease tokens in a form that this version cannot read",
			"effect", "leases that other replicas have granted expire by themselves",
			"remedy", "set --lease-secret, or run one version")
	case agreed != t.secret:
		t.secret = agreed
		t.conf.Signer.Prefer([]byte(agreed))
	}
	return err
}

// maxEndings bounds how often one key is asked to end the leases of an owner,
// limit.OwnerSlice at a time.
const maxEndings = 2 * limit.MaxInFlight / limit.OwnerSlice

// reap ends the leases of an owner that is gone, under all keys where requests
// are in flight. One replica does it, and another one if that fails. Unless all
// keys are known, the owner counts as gone until they are.
func (t *Tracker) reap(ctx context.Context, gone *owner, all bool) error {
	registry := t.conf.Registry
	who, err := registry.Claim(ctx, "end/"+hex.EncodeToString(gone.id[:]), t.me, 2*t.conf.OwnerGrace)
	if err != nil || who != t.me || !t.owners.stillGone(gone) {
		return err
	}
	var list []*entry
	var reqs [][]limit.Op
	for _, q := range t.tally.questions() {
		if t.tally.countOf(q.entry) > 0 {
			op := limit.Op{Key: q.key, Limit: lifeLimit(q.ttl), Cost: -1, Holder: string(gone.id[:]), Ending: limit.EndOwner}
			list, reqs = append(list, q.entry), append(reqs, t.withCorrections(op, q.entry))
		}
	}
	ended, err := t.reapKeys(ctx, list, reqs)
	if err == nil && all {
		if err = registry.Drop(ctx, ownersTable, []string{ownerRow + string(gone.id[:])}); err == nil {
			t.owners.removeGone(gone)
		}
	}
	if !all && ended == 0 {
		return err
	}
	t.conf.Log.Warn("proxy gone: no replica heard from it within the grace time; ending its leases",
		"owner", gone.Name, "peer", gone.Peer, "grace", t.conf.OwnerGrace, "ended", ended, "error", err)
	return err
}

// reapKeys repeats each request, which is about an entry of list, until nothing is
// left for it to end. It returns how many leases were ended.
func (t *Tracker) reapKeys(ctx context.Context, list []*entry, reqs [][]limit.Op) (ended int64, err error) {
	for try := 0; len(reqs) > 0 && try < maxEndings && err == nil; try++ {
		left := 0
		err = t.takeInBatches(ctx, reqs, func(i int, v *limit.Verdict) {
			e, ops := list[i], reqs[i]
			n := t.tally.takeReaped(e, v)
			ended += n
			if e.reserves() {
				t.noteLost(e, v, n)
			} else {
				t.conf.Metrics.Lease(e.of.domain, e.of.rule).At(int(Reaped)).Add(n)
			}
			if rest, more := ops[0].Rest(v); more {
				ops[0] = rest
				list[left], reqs[left] = e, ops
				left++
			}
		})
		list, reqs = list[:left], reqs[:left]
	}
	return ended, err
}

// takeInBatches asks the backend about any number of requests. It calls read with the index and the verdict of each
// that is decided, and returns the first error. A corrupt counter is no error: nothing can be done about it, and
// nothing else waits for it. After a call of which nothing was decided, takeInBatches asks no more.
func (t *Tracker) takeInBatches(ctx context.Context, list [][]limit.Op, read func(int, *limit.Verdict)) (err error) {
	for from := 0; from < len(list); from += batchSize {
		failed := 0
		out := t.store.takeEach(ctx, list[from:min(from+batchSize, len(list))])
		for i := range out {
			switch v := &out[i]; {
			case v.Err == nil:
				read(from+i, v)
			case errors.Is(v.Err, backends.ErrCorrupt):
				t.warn("a counter of requests in flight is corrupt: leases under it end when they expire", "error", v.Err)
			default:
				err = cmp.Or(err, v.Err)
				failed++
			}
		}
		if failed == len(out) {
			break
		}
	}
	return err
}
