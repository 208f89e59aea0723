package fleet

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/kit/background"
	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/ratelimit/insight"
)

const (
	table = "tops"
	every = 5 * time.Second
	life  = 3 * every // of a row
	fresh = time.Second
	// most is how many refused keys a replica writes, and how many near ones.
	most = 32
)

// Config is what a Fleet needs.
type Config struct {
	Watch *insight.Watch
	// Registry is what replicas share; nil: each knows only itself.
	Registry backends.Registry
	// Replica is the number of this process, and Name what people call it, such as its host.
	Replica uint32
	Name    string
	Log     *slog.Logger
}

// A Fleet is all replicas that write to one store. It may be used concurrently.
type Fleet struct {
	conf    Config
	failed  metrics.Counter
	log     background.LogLimit
	written []string // keys of this replica's rows
	pace    pace

	mu     sync.Mutex
	others []*row // without this replica's
	readAt time.Time
	err    error
}

// New returns the fleet as one replica sees it.
func New(c Config) *Fleet {
	c.Name = c.Name[:min(len(c.Name), maxReplicaName)]
	return &Fleet{conf: c, log: background.LogLimit{PerSecond: 1}}
}

// A Replica is one whose figures are in a [Top].
type Replica struct{ ID, Name string }

// A Top is the keys that count most.
type Top struct {
	Keys []Key
	// Exact is false if there were more keys than could be counted.
	Exact    bool
	Replicas []Replica // this one first
	// Alone: the store has nothing that replicas share.
	Alone bool
	// Err is why the figures of other replicas are missing.
	Err error
}

// Top returns the keys by their figures in the last minutes, at most Minutes, the largest first.
func (f *Fleet) Top(ctx context.Context, by By, minutes int) Top {
	list, exact := f.own(by, minutes)
	t := Top{Exact: exact, Alone: f.conf.Registry == nil, Replicas: []Replica{{replicaID(f.conf.Replica), f.conf.Name}}}
	merged := map[[2]string]*Key{}
	for i := range list {
		merged[[2]string{list[i].Rule, list[i].Name}] = &list[i]
	}
	others, err := f.read(ctx)
	t.Err = err
	for _, r := range others {
		if !slices.ContainsFunc(t.Replicas, func(have Replica) bool { return have.ID == r.replica }) {
			t.Replicas = append(t.Replicas, Replica{r.replica, r.Name})
		}
		for _, k := range r.keys(by) {
			id := [2]string{k.Rule, k.Name}
			if there := merged[id]; there != nil {
				there.add(&k, by)
			} else {
				merged[id] = &k
			}
		}
	}
	for _, k := range merged {
		k.sum(by, minutes)
		if k.Figure > 0 {
			t.Keys = append(t.Keys, *k)
		}
	}
	sort.Slice(t.Keys, func(i, j int) bool {
		a, b := &t.Keys[i], &t.Keys[j]
		return cmp.Or(cmp.Compare(b.Figure, a.Figure), strings.Compare(a.Name, b.Name), strings.Compare(a.Rule, b.Rule)) < 0
	})
	return t
}

// own returns what this replica has seen, the largest figures of the last minutes first.
func (f *Fleet) own(by By, minutes int) ([]Key, bool) {
	find := f.conf.Watch.Refused
	if by == Near {
		find = f.conf.Watch.Near
	}
	stats, exact := find(time.Now().UnixMicro(), minutes, 1<<10)
	keys := make([]Key, len(stats))
	for i := range stats {
		s := &stats[i]
		keys[i] = Key{Name: s.Name, Cut: s.Cut, Rule: s.Rule, Limit: descriptors.LimitText(s.Limit), Error: s.Error,
			Minutes: s.Minutes}
	}
	return keys, exact
}

// read returns the rows of other replicas, as they were a second ago or later.
func (f *Fleet) read(ctx context.Context) ([]*row, error) {
	if f.conf.Registry == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.readAt) < fresh {
		return f.others, f.err
	}
	ctx, cancel := context.WithTimeout(ctx, fresh)
	defer cancel()
	rows, err := f.conf.Registry.List(ctx, table)
	f.others, f.err, f.readAt = nil, err, time.Now()
	mine := replicaID(f.conf.Replica)
	for _, r := range rows {
		if decoded, ok := decode(r); ok && decoded.replica != mine {
			f.others = append(f.others, &decoded)
		}
	}
	sort.Slice(f.others, func(i, j int) bool { return f.others[i].replica < f.others[j].replica })
	return f.others, f.err
}

// Rate returns the traffic of this process in the last minute.
func (f *Fleet) Rate() Rate { return f.pace.rate(&f.conf.Watch.Traffic, time.Now()) }

// Run writes what this replica has seen until ctx ends, and then takes it back.
func (f *Fleet) Run(ctx context.Context) {
	background.Every(ctx, every, func(ctx context.Context) {
		f.Rate()
		if err := f.write(ctx); err != nil && ctx.Err() == nil {
			f.failed.Inc()
			if ok, skipped := f.log.Allow(); ok {
				f.conf.Log.Warn("other replicas cannot see the keys that are refused here", "error", err, "suppressed", skipped)
			}
		}
	})
	if f.conf.Registry == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fresh)
	defer cancel()
	_ = f.conf.Registry.Drop(ctx, table, f.written) // else they expire
}

func (f *Fleet) write(ctx context.Context) error {
	if f.conf.Registry == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, every)
	defer cancel()
	var items []item
	for _, by := range []By{Refused, Near} {
		keys, _ := f.own(by, Minutes)
		for _, k := range keys[:min(len(keys), most)] {
			items = append(items, newItem(by, &k))
		}
	}
	rows := encode(replicaID(f.conf.Replica), f.conf.Name, items)
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].Key
	}
	gone := slices.DeleteFunc(f.written, func(name string) bool { return slices.Contains(names, name) })
	f.written = names
	left, err := f.conf.Registry.Put(ctx, table, rows, life)
	switch {
	case err != nil:
		return err
	case left > 0:
		return fmt.Errorf("the table has no room for %d rows", left)
	case len(gone) > 0:
		return f.conf.Registry.Drop(ctx, table, gone)
	}
	return nil
}

func replicaID(n uint32) string { return fmt.Sprintf("%08x", n) }
