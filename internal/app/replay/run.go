package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/descriptors"
	"github.com/headgate-rls/headgate/internal/app/virtual"
	"github.com/headgate-rls/headgate/limit"
	"github.com/headgate-rls/headgate/ratelimit"
)

// Options say what is replayed.
type Options struct {
	Files []string // "-" is Stdin
	Stdin io.Reader
	New   *descriptors.Set
	// Old are the rules before; nil: the lines say what was answered.
	Old *descriptors.Set
	// Log is how lines of access logs become requests; unused: the files are captures.
	Log Mapping

	Reorder  time.Duration // by how much lines may be out of order
	Ended    time.Duration // the same of files whose lines come as requests end; 0: Reorder
	From, To time.Time     // zero: no bound
	Warm     time.Duration // at the beginning, decided and not reported
	Hold     time.Duration // of requests in flight whose end is not known; 0: as long as the others on average
	Top      int           // how many keys are reported
	MaxBad   int           // how many lines may be broken
	MaxKeys  int           // bounds the counters of each set of rules, and the keys that are newly refused
	// Progress is called now and then; total is 0 if it is not known.
	Progress func(pass string, read, total int64, requests int64)
}

// parser returns the parser of a file that begins with this text, and the file's form.
func (o *Options) parser(start []byte) (parser, *form, error) {
	f := formOf(start)
	if !o.Log.Used() && !f.known() {
		return new(capture), captured, nil
	}
	p, err := newAccessLog(o.Log, f)
	return p, f, err
}

// A run is one replay.
type run struct {
	*Options
	ctx    context.Context
	copies map[string]*os.File // of the files that can be read only once, by their names
	sizes  map[string]int64    // bytes of each file at the start of the first pass
	report *Report
	rules  map[string]*RuleRow
	keys   map[counterKey]*KeyRow

	begin limit.Instant // of what is reported; 0: not known yet
	held  time.Duration // of requests whose end is known
	holds int64
	spent int64 // by requests with reservations and a known cost
	costs int64
}

// counterKey names a counter of a limit.
type counterKey struct {
	key  limit.Key
	rule string
}

// Run replays. The error is the system's or that of ctx, or reports what is invalid in the files.
func Run(ctx context.Context, opt Options) (*Report, error) {
	r := &run{Options: &opt, ctx: ctx, copies: map[string]*os.File{}, sizes: map[string]int64{},
		rules: map[string]*RuleRow{}, keys: map[counterKey]*KeyRow{}, report: &Report{Compared: opt.Old != nil}}
	opt.MaxKeys = cmp.Or(max(opt.MaxKeys, 0), 1_000_000)
	defer func() {
		for _, f := range r.copies {
			_ = f.Close()
		}
	}()
	if err := r.spool(); err != nil {
		return nil, err
	}
	if err := r.decide(); err != nil {
		return nil, err
	}
	r.conclude()
	return r.report, r.fit()
}

// spool keeps standard input and what comes through pipes in files, since it is read more than once.
func (r *run) spool() error {
	for _, name := range r.Files {
		if r.copies[name] != nil {
			continue
		}
		from := r.Stdin
		if name != "-" {
			info, err := os.Stat(name)
			if err != nil || info.Mode().IsRegular() || info.IsDir() {
				continue // opening it says what is wrong
			}
			pipe, err := os.Open(name)
			if err != nil {
				return err
			}
			defer pipe.Close()
			from = pipe
		}
		kept, err := os.CreateTemp("", "headgate-replay-")
		if err != nil {
			return err
		}
		r.copies[name] = kept
		_ = os.Remove(kept.Name()) // it is read by its handle, and goes with the process however that ends
		if _, err = io.Copy(kept, from); err != nil {
			return fmt.Errorf("%s is kept in a file meanwhile: %w", cmp.Or(strings.TrimPrefix(name, "-"), "standard input"), err)
		}
	}
	return nil
}

// pass calls each with all requests in the order of their times.
func (r *run) pass(name string, each func(*line) error) (*input, error) {
	for _, f := range r.copies {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
	}
	in, err := open(r.Files, r.copies, r.Options, r.sizes)
	if err != nil {
		return nil, err
	}
	defer in.close()
	from := limit.Instant(0)
	if !r.From.IsZero() {
		from = limit.InstantOf(r.From.Add(-r.Warm))
	}
	last := time.Now()
	for n := int64(0); ; n++ {
		if n%(1<<14) == 0 {
			if err := r.ctx.Err(); err != nil {
				return nil, err
			}
			if r.Progress != nil && time.Since(last) > 200*time.Millisecond {
				read := int64(0)
				for _, f := range in.files {
					read += f.counted.n
				}
				r.Progress(name, read, in.total, n)
				last = time.Now()
			}
		}
		l, err := in.next()
		switch {
		case err != nil:
			return nil, err
		case l == nil:
			return in, nil
		case l.at < from, !r.To.IsZero() && l.at >= limit.InstantOf(r.To):
			continue
		}
		if err := each(l); err != nil {
			return nil, err
		}
	}
}

// decide decides all requests by the rules.
func (r *run) decide() error {
	by, err := virtual.New(r.New, virtual.Options{MaxKeys: r.MaxKeys})
	if err != nil {
		return err
	}
	defer by.Close()
	var before *virtual.World
	if r.Old != nil {
		if before, err = virtual.New(r.Old, virtual.Options{MaxKeys: r.MaxKeys}); err != nil {
			return fmt.Errorf("the rules before: %w", err)
		}
		defer before.Close()
	}
	var now, then ratelimit.Response
	var in *input
	in, err = r.pass("decide", func(l *line) error {
		if l.request == nil {
			r.report.Unmapped++
			return nil
		}
		if r.begin == 0 {
			r.begin = l.at.Add(r.Warm)
			if !r.From.IsZero() {
				r.begin = limit.InstantOf(r.From)
			}
		}
		if r.one(by, l, &now) {
			r.report.Assumed++
		}
		if now.Err != nil {
			r.report.Undecided++
			r.report.UndecidedWhy = now.Err.Message
			return nil
		}
		if before != nil {
			r.one(before, l, &then)
		}
		r.count(l, &now, &then)
		return nil
	})
	if err != nil {
		return err
	}
	r.report.about(in)
	r.report.Bad, r.report.BadLines, r.report.Back, r.report.BackAt = in.bad, in.badSome, in.back, in.backAt
	r.report.Forgotten = by.Evicted()
	if before != nil {
		r.report.Forgotten += before.Evicted()
	}
	return r.nothing(in)
}

// nothing returns an error if nothing was replayed, or if fields are in no line.
func (r *run) nothing(in *input) error {
	for _, f := range in.files {
		if log, ok := f.parser.(*accessLog); ok && log.names != nil {
			if err := log.missing(); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	switch {
	case r.report.Decided > 0:
		return nil
	case in.bad > 0:
		return fmt.Errorf("no line could be read: %v", in.badSome[0])
	case r.report.Undecided > 0:
		return fmt.Errorf("no request could be decided: %s", r.report.UndecidedWhy)
	case r.report.Unmapped > 0:
		return errors.New("no line has the values of a descriptor: check --descriptor")
	case in.last > 0:
		return fmt.Errorf("no request was made between --from and --to; the last one was at %s",
			in.last.Time().Format(time.RFC3339))
	}
	return errors.New("the files are empty: there is nothing to replay")
}

// one decides a request, and keeps its leases and reservations until it ends. It then settles the reservations, unless
// reports do. It returns assumed if no line has the cost.
func (r *run) one(w *virtual.World, l *line, resp *ratelimit.Response) (assumed bool) {
	w.Decide(l.at, l.request, resp)
	lease := &resp.Inside.Lease
	if len(lease.Held)+len(lease.Reserved) == 0 {
		return false
	}
	until, cost := l.until, l.cost
	switch {
	case until != 0:
	case r.Hold > 0:
		until = l.at.Add(r.Hold)
	case r.holds > 0:
		until = l.at.Add(r.held / time.Duration(r.holds))
	}
	for i := range lease.Reserved {
		of := &lease.Reserved[i]
		lost := l.at.Add(of.TTL - descriptors.ReserveGrace)
		switch {
		case of.Oldest: // a report settles it, or else it is lost
			until = lost
		case l.until == 0 && l.cost == virtual.Unknown:
			assumed = true
			if r.costs > 0 {
				cost = r.spent / r.costs
			}
		}
		until = cmp.Or(until, lost)
	}
	if until != 0 {
		w.Hold(resp, until, cost)
	}
	return assumed
}

// learn records the duration and the cost of a request. Their averages stand in for those that are unknown.
func (r *run) learn(l *line) {
	if l.until != 0 {
		r.held, r.holds = r.held+l.until.Sub(l.at), r.holds+1
	}
	if l.cost >= 0 {
		r.spent, r.costs = r.spent+l.cost, r.costs+1
	}
}

// count counts the answers to a request.
func (r *run) count(l *line, now, then *ratelimit.Response) {
	r.learn(l)
	rep := r.report
	rep.Decided++
	if l.at < r.begin {
		return
	}
	rep.First = cmp.Or(rep.First, l.at)
	rep.Requests++
	rep.Last = max(rep.Last, l.at)
	before, rule := l.refused, l.rule
	if r.Old != nil {
		before, rule = then.OverLimit, then.Inside.Rule
	} else if l.answered {
		rep.Answered++
	}
	if now.Inside.Rule == "" {
		rep.Unlimited++
	}
	if before {
		rep.RefusedOld++
		r.rule(rule).RefusedOld++
		rep.before.add(l.at, 1)
	}
	if !now.OverLimit {
		if before {
			rep.NewlyAdmitted++
		}
		return
	}
	rep.RefusedNew++
	r.rule(now.Inside.Rule).RefusedNew++
	rep.after.add(l.at, 1)
	if !before {
		rep.NewlyRefused++
		r.newlyRefused(l, &now.Inside)
	}
}

// maxRuleRows bounds the rules of a report.
const maxRuleRows = 100_000

func (r *run) rule(name string) *RuleRow {
	row := r.rules[name]
	if row == nil && len(r.rules) >= maxRuleRows { // lines may have any names
		name = "(others)"
		row = r.rules[name]
	}
	if row == nil {
		row = &RuleRow{Rule: cmp.Or(name, "(not known)")}
		r.rules[name] = row
	}
	return row
}

func (r *run) newlyRefused(l *line, in *ratelimit.Inside) {
	id := counterKey{in.Key, in.Rule}
	row := r.keys[id]
	if row == nil {
		if len(r.keys) >= r.MaxKeys {
			r.report.KeysLeftOut = true
			return
		}
		row = &KeyRow{Rule: in.Rule, First: l.at, counter: in.Key, limit: in.Limit,
			Key: descriptors.Name(l.request.Domain, l.request.Descriptors[in.Descriptor].Entries)}
		r.keys[id] = row
	}
	row.NewlyRefused++
}

// conclude makes the tables of the report.
func (r *run) conclude() {
	rep := r.report
	for _, row := range r.rules {
		row.Change = row.RefusedNew - row.RefusedOld
		rep.Rules = append(rep.Rules, row)
	}
	slices.SortFunc(rep.Rules, func(a, b *RuleRow) int {
		return cmp.Or(cmp.Compare(b.Change, a.Change), cmp.Compare(a.Rule, b.Rule))
	})
	rep.NewlyRefusedKeys = len(r.keys)
	rep.Keys = slices.SortedFunc(maps.Values(r.keys), func(a, b *KeyRow) int {
		return cmp.Or(cmp.Compare(b.NewlyRefused, a.NewlyRefused), cmp.Compare(a.First, b.First), cmp.Compare(a.Key, b.Key),
			cmp.Compare(a.Rule, b.Rule))
	})
	rep.Keys = rep.Keys[:min(len(rep.Keys), max(r.Top, 0))]
}
