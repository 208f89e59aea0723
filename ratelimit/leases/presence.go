package leases

import (
	"context"
	"time"
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
