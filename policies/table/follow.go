package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate-rls/headgate/policies"
)

// A Follower keeps a Set true to a Store. It asks for the generation once a second, and every
// 50 ms while changes are announced, and reads what has changed. While the store does not answer,
// the last snapshot stays in force.
type Follower struct {
	store Store
	set   *policies.Set
	log   *slog.Logger
	hints chan struct{}

	seen    int64 // the generation of the snapshot, -1: none
	failing bool
	away    time.Time // since when the store does not answer; zero: it does
	// again is how long to wait until policies are read again that could not be read; 0: they could.
	again time.Duration
	// ignored is how many rows were ignored in this reading.
	ignored int

	readOnly atomic.Bool // the store said so when it answered the last time
}

// NewFollower returns a follower, which [Follower.Run] starts.
func NewFollower(store Store, set *policies.Set, log *slog.Logger) *Follower {
	return &Follower{store: store, set: set, log: log, hints: make(chan struct{}, 1), seen: -1}
}

// Hint has the follower look at once: this process knows of a change.
func (f *Follower) Hint() {
	select {
	case f.hints <- struct{}{}:
	default:
	}
}

// Poll compares the set with the store once. It must not be called while Run runs.
func (f *Follower) Poll(ctx context.Context) error {
	_, err := f.poll(ctx)
	return err
}

// ReadOnly reports whether the store takes no changes.
func (f *Follower) ReadOnly() bool { return f.readOnly.Load() }

// Run follows the store until ctx ends.
func (f *Follower) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-f.hints:
		}
		began := time.Now()
		watched, err := f.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		f.report(err)
		next := began.Add(pollIdle)
		switch {
		case f.again > 0:
			next = time.Now().Add(f.again)
		case watched:
			next = began.Add(pollWatched)
		}
		timer.Reset(time.Until(next))
	}
}

// report logs when the store stops or begins to answer.
func (f *Follower) report(err error) {
	switch {
	case err != nil && !f.failing:
		f.log.Error("the database of policies does not answer; the policies read last stay in force", "error", err, "loaded",
			f.set.Loaded())
	case err == nil && f.failing:
		f.log.Info("the database of policies answers again")
	}
	f.failing = err != nil
}

// reportReadOnly logs when policies can be changed no more, or again.
func (f *Follower) reportReadOnly(readOnly bool) {
	if readOnly {
		f.log.Warn("the database of policies is read-only: policies are followed, and cannot be changed")
		return
	}
	f.log.Info("the database of policies takes changes again")
}

// poll reads what has changed. It reports whether changes are announced.
func (f *Follower) poll(ctx context.Context) (watched bool, err error) {
	asked := time.Now()
	short, cancel := context.WithTimeout(ctx, stateWithin)
	defer cancel()
	state, err := f.store.State(short)
	if err != nil {
		if f.away.IsZero() {
			f.away = asked
		}
		return false, err
	}
	other := !f.away.IsZero() && asked.Sub(f.away) >= failover
	if state.Generation != f.seen || other {
		f.ignored = 0
		err = f.read(ctx, &state, asked, other)
		if more := f.ignored - maxIgnored; more > 0 {
			f.log.Error("more rows of the table of policies are ignored", "rows", more)
		}
		if err != nil {
			f.again = min(max(2*f.again, pollIdle), readAgain)
			return false, err
		}
	}
	if f.readOnly.Swap(state.ReadOnly) != state.ReadOnly {
		f.reportReadOnly(state.ReadOnly)
	}
	f.again, f.away = 0, time.Time{}
	f.set.Current(asked)
	return state.Watched(), nil
}

// fewChanges is how many changes are read one by one in any case. A change takes several times the
// memory of a policy in a snapshot.
const fewChanges = 1 << 13

// errMany ends the reading of changes: to read everything takes less memory.
var errMany = errors.New("too many policies have changed to read them one by one")

// failover is how long the store must be away until another server, or a backup, may have replaced it. That one may
// lack the last changes, and have numbered others alike.
const failover = 3 * time.Second

// read brings the set up to date. It reads what has changed, or everything if that is unknown or the store may be
// another one.
func (f *Follower) read(ctx context.Context, state *State, asked time.Time, other bool) error {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	if other || f.seen < 0 || state.Generation < f.seen || f.seen < state.Floor {
		return f.readAll(ctx, asked)
	}
	var changes []policies.Change
	most := max(fewChanges, f.set.Snapshot().Len()/4)
	generation, err := f.store.Read(ctx, f.seen, func(r Row) error {
		if len(changes) == most {
			return errMany
		}
		figures, wrong := f.check(&r)
		changes = append(changes, policies.Change{Key: r.Key, Removed: r.Removed || wrong, Figures: figures})
		return nil
	})
	switch {
	case errors.Is(err, errMany):
		return f.readAll(ctx, asked)
	case err != nil:
		return err
	}
	next := f.set.Snapshot().With(changes)
	if next.Len() > MaxPolicies {
		return ErrTooMany
	}
	lines := describe(f.set.Snapshot(), changes)
	f.install(next, generation, asked)
	f.log.Info("policies have changed", "generation", generation, "changes", len(changes), "policies", next.Len())
	f.changed(lines)
	return nil
}

func (f *Follower) readAll(ctx context.Context, asked time.Time) error {
	b := policies.Builder{Keeps: f.set.Keeps}
	n, rejected := 0, int64(0)
	generation, err := f.store.Read(ctx, -1, func(r Row) error {
		if n++; n > MaxPolicies {
			return ErrTooMany
		}
		if figures, wrong := f.check(&r); wrong {
			rejected++
		} else {
			b.Add(r.Key, figures)
		}
		return nil
	})
	if err != nil {
		return err
	}
	next := b.Snapshot()
	if f.seen >= 0 {
		f.changed([]string{fmt.Sprintf("all policies were read again: %d -> %d", f.set.Snapshot().Len(), next.Len())})
	}
	f.set.SetRejected(rejected)
	f.install(next, generation, asked)
	f.log.Info("policies read from the database", "generation", generation, "policies", next.Len(), "bytes", next.Bytes())
	return nil
}

func (f *Follower) changed(lines []string) {
	if f.set.OnChange != nil {
		f.set.OnChange(lines)
	}
}

// maxDescribed is how many lines describe changes.
const maxDescribed = 20

// describe says in lines what changes of a snapshot change; the last line counts those that are left out.
func describe(s *policies.Snapshot, changes []policies.Change) (lines []string) {
	for i := range changes {
		if len(lines) == maxDescribed-1 && len(changes)-i > 1 {
			return append(lines, fmt.Sprintf("and %d more", len(changes)-i))
		}
		c := &changes[i]
		old, there := s.Find([]byte(c.Key))
		switch {
		case c.Removed:
			lines = append(lines, "- policy "+c.Key+" "+old.Text())
		case !there:
			lines = append(lines, "+ policy "+c.Key+" "+c.Text())
		default:
			lines = append(lines, "policy "+c.Key+" "+old.Text()+" -> "+c.Text())
		}
	}
	return lines
}

// maxIgnored is how many rows that are ignored have a line of the log each.
const maxIgnored = 10

// check reads a row. A row that is no policy counts as absent.
func (f *Follower) check(r *Row) (figures policies.Figures, wrong bool) {
	if r.Removed {
		return figures, false
	}
	figures, err := r.figures()
	if err == nil {
		return figures, false
	}
	if f.ignored++; f.ignored <= maxIgnored {
		f.log.Error("a row of the table of policies is ignored", "key", fmt.Sprintf("%.300q", r.Key), "error", err)
	}
	return figures, true
}

func (f *Follower) install(next *policies.Snapshot, generation int64, asked time.Time) {
	if n := next.Unusable(); n > 0 && n != f.set.Snapshot().Unusable() {
		key, why := next.UnusableOne()
		f.log.Warn("policies are not in force: the store cannot keep their limits; the rules' own limits hold", "policies", n,
			"one", key, "error", why)
	}
	f.set.Install(next, asked)
	f.seen = generation
}
