package candidate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// An Own is a store that has counters of its own in a store that others use too: nobody else's keys meet those of a
// trial.
type Own struct {
	backends.Backend
	trial atomic.Pointer[string]
}

// Begin has the counters of a trial be used, which begin unused unless other replicas have the same trial.
func (o *Own) Begin(trial string) { o.trial.Store(&trial) }

// Take renames the groups. Requests' ops are those of a candidate, which asks for nothing else.
func (o *Own) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	renamed := make([]limit.Request, len(reqs))
	for i := range reqs {
		renamed[i] = reqs[i]
		renamed[i].Ops = append([]limit.Op(nil), reqs[i].Ops...)
		for n := range renamed[i].Ops {
			key := &renamed[i].Ops[n].Key
			key.Group = o.group(key.Group)
		}
	}
	o.Backend.Take(ctx, renamed, out)
}

// Forget renames them as well.
func (o *Own) Forget(ctx context.Context, keys []limit.Key) error {
	renamed := append([]limit.Key(nil), keys...)
	for i := range renamed {
		renamed[i].Group = o.group(renamed[i].Group)
	}
	return o.Backend.Forget(ctx, renamed)
}

// group returns a group in the form of those that are too long, which no other trial has.
func (o *Own) group(of string) string {
	trial := ""
	if name := o.trial.Load(); name != nil {
		trial = *name
	}
	sum := sha256.Sum256([]byte("candidate\x00" + trial + "\x00" + of))
	return "h" + hex.EncodeToString(sum[:])
}
