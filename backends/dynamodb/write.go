package dynamodb

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"github.com/headgate-rls/headgate/backends/internal/batch"
	"github.com/headgate-rls/headgate/limit"
)

// A write is what a decision has changed. It may be sent several times, and happens once: each time it
// asks for the same items as they were before, and no item ever has the same writer twice.
type write struct {
	writer  string
	changes []change // of keys, all of those that were decided by
	lost    bool     // an answer was lost: it may have happened
}

// nextWriter names a write, as nobody else names one.
func (b *Backend) nextWriter() string {
	return string(binary.BigEndian.AppendUint64([]byte(b.writer), uint64(b.writes.Add(1))))
}

// result is what the batch has changed, or nil.
func (d *decision) result() *write {
	w := &write{changes: make([]change, len(d.keys))}
	for i, k := range d.keys {
		w.changes[i] = change{name: counter(k), before: d.held[i].known}
	}
	for i, c := range d.batch.Changed() {
		if w.writer == "" {
			w.writer = d.b.nextWriter()
		}
		w.put(i, c, limit.InstantOf(d.b.conf.Now()))
	}
	if w.writer == "" {
		return nil
	}
	return w
}

// put notes a change. The item stays as long as its state would from now on, also where callers' clocks
// are behind this one.
func (w *write) put(i int, c batch.Change, now limit.Instant) {
	ch := &w.changes[i]
	state, _ := c.State.AppendBinary(nil) // of a state that was decided there is no error
	ch.after = item{version: ch.before.version + 1, writer: w.writer, state: state}
	ch.ttl = ttl(max(c.Ends, now+max(0, c.Ends-c.State.At)))
}

var errOverwritten = errors.New("the answer to a write was lost, and others have written since")

// write sends what is pending.
func (d *decision) write(ctx context.Context) (outcome, error) {
	w := d.pending
	o, err := d.send(ctx, w)
	switch o {
	case done:
		d.wrote(w)
	case lost:
		w.lost = true
	case busy:
		d.b.throttled.Add(1)
	case changed:
		return d.overtaken(w, err)
	}
	return o, err
}

func (d *decision) send(ctx context.Context, w *write) (outcome, error) {
	if len(w.changes) == 1 {
		return d.b.client.write(ctx, &w.changes[0])
	}
	return d.b.client.writeAll(ctx, hex.EncodeToString([]byte(w.writer)), w.changes)
}

// wrote notes that a write has happened.
func (d *decision) wrote(w *write) {
	for i := range w.changes {
		if after := w.changes[i].after; after.there() {
			d.held[i].known = after
		}
	}
	d.pending = nil
}

// overtaken looks at the items that were not as they should be. If no answer was lost, the write has
// not happened. If one was, the items say whether it has: they bear its name; or they have the number
// that it would have given them from somebody else. Where others have written since, nobody knows.
func (d *decision) overtaken(w *write, err error) (outcome, error) {
	ours, theirs := false, false
	found(err, func(i int, a attributes) {
		d.see(i, a)
		it, ch := &d.held[i].known, &w.changes[i]
		ours = ours || it.writer == w.writer
		theirs = theirs || ch.after.there() && it.version == ch.after.version && it.writer != w.writer
	})
	switch {
	case w.lost && ours:
		d.b.settled.Add(1)
		d.wrote(w)
		return done, nil
	case w.lost && !theirs:
		return wrong, errOverwritten
	}
	d.b.conflicts.Add(1)
	d.pending = nil
	d.changes++
	return changed, errChanged
}
