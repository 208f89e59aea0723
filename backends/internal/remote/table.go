package remote

import (
	"context"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/backends/internal/batch"
	"github.com/headgate-rls/headgate/limit"
)

// A Table is a store that keeps states as bytes in rows by key, as a database
// does. It has a clock of its own, for requests without an instant.
type Table struct {
	now  func() time.Time
	caps backends.Caps

	mu   sync.Mutex
	rows map[limit.Key]row
}

// A row is a state, and when it may go.
type row struct {
	state []byte
	ends  limit.Instant
}

// NewTable returns an empty table whose clock is now.
func NewTable(now func() time.Time) *Table {
	t := &Table{now: now, rows: map[limit.Key]row{}}
	t.caps = backends.Caps{
		Name: "table", Algorithms: map[limit.Algorithm]backends.AlgorithmCaps{},
		Atomicity: backends.Whole, ServerClock: true, Local: true, Precision: time.Microsecond, MaxOps: 64,
	}
	for _, a := range limit.AllAlgorithms() {
		t.caps.Algorithms[a] = backends.AlgorithmCaps{MaxUnits: a.MaxUnits()}
	}
	for _, a := range limit.Algorithms() {
		t.caps.Algorithms[a] = backends.AlgorithmCaps{MaxUnits: a.MaxUnits(), Overflow: limit.Debt}
	}
	return t
}

// Caps returns what the table promises.
func (t *Table) Caps() backends.Caps { return t.caps }

// Take implements [backends.Backend].
func (t *Table) Take(_ context.Context, reqs []limit.Request, out []limit.Verdict) {
	var b batch.Batch
	for i := range reqs {
		if err := t.caps.CheckRequest(&reqs[i]); err != nil {
			backends.Fail(out[i:i+1], err)
			continue
		}
		b.Add(&reqs[i], &out[i])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, k := range b.Keys() {
		if err := t.read(&b, i, k); err != nil {
			backends.Fail(out, err)
			return
		}
	}
	b.Decide(limit.InstantOf(t.now()))
	for _, c := range b.Changed() {
		t.write(c)
	}
}

// read puts the state of the key number i into b.
func (t *Table) read(b *batch.Batch, i int, k limit.Key) error {
	r, ok := t.rows[k]
	if !ok {
		return nil
	}
	var s limit.State
	if err := s.UnmarshalBinary(r.state); err != nil {
		return backends.Unreadable(err)
	}
	b.Put(i, s)
	return nil
}

func (t *Table) write(c batch.Change) {
	state, _ := c.State.AppendBinary(nil)
	t.rows[c.Key] = row{state, c.Ends}
}

// Sweep drops the rows that are over.
func (t *Table) Sweep() {
	now := limit.InstantOf(t.now())
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, r := range t.rows {
		if r.ends <= now {
			delete(t.rows, k)
		}
	}
}

// Len returns how many rows there are.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// Forget implements [backends.Backend].
func (t *Table) Forget(_ context.Context, keys []limit.Key) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		delete(t.rows, k)
	}
	return nil
}

// Ping implements [backends.Backend].
func (t *Table) Ping(context.Context) error { return nil }

// Close implements [backends.Backend]. The rows stay, for other handles.
func (t *Table) Close() error { return nil }
