package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate-rls/headgate/backends/internal/batch"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/limit"
)

// A decision answers requests whose keys hang together. It has the turns of all their keys, and so is
// the only one of this process that uses them.
type decision struct {
	b    *Backend
	reqs []*limit.Request
	out  []*limit.Verdict

	batch   batch.Batch
	keys    []limit.Key // the batch's
	held    []*entry    // of these keys
	fresh   []bool      // what is known of a key was so after the turns were taken
	bad     batch.Bad
	pending *write // what has been decided and is not written yet
	changes int    // tries that have failed because others had written
}

var errChanged = errors.New("others have changed what was to be written, at each try")

// run decides. Requests that have met an item which is not headgate's are in bad afterwards, and then
// nothing is decided.
func (d *decision) run(ctx context.Context) error {
	d.begin()
	d.keys = slices.Clone(d.keys)
	d.fresh = make([]bool, len(d.keys))
	defer d.giveTurns()
	if err := d.takeTurns(ctx); err != nil {
		return failed(fmt.Errorf("wait for a turn: %w", err), false)
	}
	for try := 1; ; try++ {
		o, err := d.try(ctx)
		if o == done {
			return nil
		}
		if d.b.conf.last(o, try) || !d.pause(ctx, o, try) {
			inDoubt := d.pending != nil && d.pending.lost
			d.forget()
			return failed(err, inDoubt)
		}
		d.b.retries.Add(1)
	}
}

// takeTurns waits for all keys, in their order, so that no two decisions wait for each other.
func (d *decision) takeTurns(ctx context.Context) error {
	for _, k := range d.keys {
		e, err := d.b.cache.take(ctx, k)
		if err != nil {
			return err
		}
		d.held = append(d.held, e)
	}
	for _, e := range d.held {
		e.race.begins(d.b.conf.Now())
		if background.Sleep(ctx, e.race.until.Sub(d.b.conf.Now())) != nil {
			return ctx.Err()
		}
	}
	return nil
}

// giveTurns lets others go on.
func (d *decision) giveTurns() {
	for _, e := range d.held {
		e.race.ended(d.changes, d.b.conf.Now())
		d.b.cache.give(e)
	}
}

// forget drops what is known, after which nobody is sure of it.
func (d *decision) forget() {
	for _, e := range d.held {
		e.known = item{}
	}
}

// pause waits before the next try, and reports whether there is time for one. After a change that try
// knows more than the last one did: it waits for rivals only.
func (d *decision) pause(ctx context.Context, o outcome, try int) bool {
	if o != changed {
		return pause(ctx, try)
	}
	longest := time.Duration(0)
	for _, e := range d.held {
		longest = max(longest, e.race.delay(try))
	}
	return background.Sleep(ctx, longest) == nil
}

// maxUnsent is how often a call is tried if there is no connection in the end. Tries may be more, for
// those who race with others: they need not find out as often that nobody is there.
const maxUnsent = 5

// last reports whether a try that came out like this is the last one.
func (c *Config) last(o outcome, try int) bool {
	return o == wrong || try == c.Tries || o == unsent && try >= maxUnsent
}

// longestPause is the longest that pause waits.
const longestPause = 160 * time.Millisecond

// pause waits before the next try, and reports whether there is time for one.
func pause(ctx context.Context, try int) bool {
	return background.Sleep(ctx, rand.N(min(5*time.Millisecond<<try, longestPause))) == nil
}

// try makes one call, or none if nothing is left to be asked.
func (d *decision) try(ctx context.Context) (outcome, error) {
	if d.pending == nil {
		d.think()
		if d.bad != nil {
			return done, nil
		}
		if d.pending == nil && !slices.Contains(d.fresh, false) {
			return done, nil
		}
	}
	began := d.b.conf.Now()
	defer func() {
		for _, e := range d.held {
			e.race.took(d.b.conf.Now().Sub(began))
		}
	}()
	ctx, cancel := attempt(ctx)
	defer cancel()
	if d.pending == nil {
		return d.read(ctx)
	}
	return d.write(ctx)
}

// begin adds the requests to an empty batch.
func (d *decision) begin() {
	d.batch.Reset()
	for i, req := range d.reqs {
		d.batch.Add(req, d.out[i])
	}
	d.keys = d.batch.Keys()
}

// think decides by what is known. What changes by that is pending then.
func (d *decision) think() {
	d.begin()
	for i := range d.keys {
		known := &d.held[i].known
		if !known.there() {
			continue
		}
		var s limit.State
		if err := s.UnmarshalBinary(known.state); err != nil {
			d.isBad(i, err)
			continue
		}
		d.batch.Put(i, s)
	}
	if d.bad == nil {
		d.batch.Decide(0) // each request has its instant
		d.pending = d.result()
	}
}

func (d *decision) isBad(i int, err error) {
	d.bad.Add(d.keys[i], err)
	d.held[i].known = item{} // it is looked at again the next time
}

// read asks for what is there now. If all is as was known, what was decided by that stands. What DynamoDB
// has had no capacity for is asked for again at the next try, by itself.
func (d *decision) read(ctx context.Context) (outcome, error) {
	var names []primary
	for i, k := range d.keys {
		if !d.fresh[i] {
			names = append(names, counter(k))
		}
	}
	items, unread, o, err := d.b.client.read(ctx, names)
	if o == busy {
		d.b.throttled.Add(1)
	}
	if err != nil {
		return o, err
	}
	same := true
	for i, k := range d.keys {
		if d.fresh[i] || unread[counter(k)] {
			continue
		}
		before := d.held[i].known.writer
		d.see(i, items[counter(k)])
		same = same && before == d.held[i].known.writer
	}
	switch {
	case d.bad != nil, same && len(unread) == 0:
		return done, nil
	case same:
		return busy, errCapacity
	}
	d.changes++
	return changed, errChanged
}

// see notes what is there now under keys[i].
func (d *decision) see(i int, a attributes) {
	it, err := readItem(a)
	if err != nil {
		d.isBad(i, err)
		return
	}
	d.held[i].known, d.fresh[i] = it, true
}
