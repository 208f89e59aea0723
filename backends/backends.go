package backends

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-rls/headgate/internal/kit/metrics"
	"github.com/headgate-rls/headgate/limit"
)

// A Backend keeps rate-limit state. Its methods may be called concurrently and
// return by ctx's deadline.
type Backend interface {
	// Take decides every request of reqs, each as if it were alone and in that
	// order where keys meet, and fills out[i], which has room for len(reqs)
	// verdicts and whose memory is reused. Refusal is a verdict, never an
	// error. out[i].Err says what kept request i from being decided; one
	// failed request does not fail its neighbours. After an error it is
	// unknown whether the request was recorded, unless the error is
	// [ErrNotApplied].
	Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict)
	// Forget drops all state under keys, as if they had never been used.
	Forget(ctx context.Context, keys []limit.Key) error
	// Ping reports whether a Take could succeed now.
	Ping(ctx context.Context) error
	// Close releases what the backend holds. Nothing is called after it.
	Close() error
}

// A Sweeper is a backend that keeps state in this process. Its owner calls Sweep
// about once a second, and Sweep drops what has expired.
type Sweeper interface{ Sweep(now limit.Instant) }

// A Migrator is a store that has a schema, which Migrate brings up to date. It
// returns what it has applied, and nothing if there was nothing to do.
type Migrator interface {
	Migrate(ctx context.Context) (applied []string, err error)
}

// A Lister is a store that can say which keys have state.
type Lister interface {
	// List returns about n keys that have state, n at least 1, and where to go on: what to give
	// as after for the next ones, "" at the end. It begins with after = "". Each call does a bounded
	// amount of work and keeps nobody else from the store for long, so it may return fewer keys than
	// n, or none, before the end. Keys that have state all the time until the end are listed, some
	// perhaps twice; others may be, also some whose state is over. An after that List did not return
	// is [ErrInvalid], or goes on somewhere; a store that cannot list as it is configured returns
	// [ErrUnsupported]. If one of several servers does not answer, List may return the error and a next
	// with which the keys of the other servers follow.
	List(ctx context.Context, after string, n int) (keys []limit.Key, next string, err error)
}

// A Partitioned store may have several servers, one of which may be slower than the others.
type Partitioned interface {
	// Servers returns a function that returns, as far as is known and without asking any,
	// which servers decide a request: a set with a bit for each server, or [AnyServer].
	// Servers can share a bit. It returns nil if there is one server.
	Servers() func(req *limit.Request) uint64
}

// AnyServer is the set of servers of a request of which nothing is known.
const AnyServer = ^uint64(0)

// The errors of a backend, a closed set: every error of a Take,
// Forget, List or Ping is (by errors.Is) at least one of these.
var (
	// ErrUnsupported: the request asks for what Caps denies.
	ErrUnsupported = errors.ErrUnsupported
	// ErrUnavailable: the store could not be asked, or did not answer in time.
	ErrUnavailable = errors.New("backend unavailable")
	// ErrNotApplied: it is certain that nothing was recorded. It accompanies one of the
	// others.
	ErrNotApplied = errors.New("nothing was recorded")
	// ErrMisconfigured: the store rejects headgate: wrong password, unknown database, missing
	// rights or missing schema. Retrying does not help. It is also ErrUnavailable. Ping and
	// Migrate return it; other methods may return ErrUnavailable instead.
	ErrMisconfigured = fmt.Errorf("%w until its configuration or headgate's is changed", ErrUnavailable)
	// ErrDeclined: the store answers, but not with a verdict on this request: it is full or takes no
	// writes, another transaction has locked the row, a script has failed. Other requests may be decided,
	// so the store counts as alive. It is also ErrUnavailable.
	ErrDeclined = fmt.Errorf("%w for this request, although it answers", ErrUnavailable)
	// ErrOverloaded: more requests arrive than the store can be asked about,
	// although it answers in time. It accompanies ErrUnavailable and
	// ErrNotApplied, or ErrUnavailable alone if another store has recorded a part.
	ErrOverloaded = errors.New("overloaded")
	// ErrInvalid: the request can never succeed as it is (no ops, no instant
	// for a store without a clock, too many ops, a key over the bound).
	ErrInvalid = errors.New("invalid request")
	// ErrCorrupt: the store answered something that no version of headgate
	// writes: foreign data under a key, or a failing script.
	ErrCorrupt = errors.New("backend state is not headgate's")
	// ErrLater: a later version of headgate has written what is under a key, in a format that this one cannot read.
	// Nothing was recorded. It is also ErrCorrupt, as nothing can be done with either, and [limit.ErrLater].
	ErrLater error = later{}
)

// Formats numbers the formats in which stores keep counters. A version that writes what the one before cannot read has
// a larger number, and marks what it writes as docs/formats.md says.
const Formats = 1

type later struct{}

func (later) Error() string   { return limit.ErrLater.Error() }
func (later) Unwrap() []error { return []error{ErrCorrupt, limit.ErrLater} }

// Unreadable returns the error of a request that meets a state which cannot be read, because of err.
func Unreadable(err error) error {
	if errors.Is(err, limit.ErrLater) {
		return laterState{err}
	}
	return fmt.Errorf("%w: %w: %w", ErrCorrupt, ErrNotApplied, err)
}

// A laterState is an error that says ErrLater by its own words.
type laterState struct{ error }

func (e laterState) Unwrap() []error { return []error{ErrLater, ErrNotApplied, e.error} }

// Atomicity says how much of a request is decided and recorded in one step
// with respect to other calls.
type Atomicity uint8

const (
	// PerPartition: the ops whose keys share a Group, or its half that names the
	// partition ([limit.Partition]). A request over several never admits too much.
	// When it is refused, what it took elsewhere is given back soon after the
	// answer, and may refuse others until then; if
	// that fails it counts until its window ends. The Reset of such a refusal may
	// count it, too. Of a request that may be refused, costs below zero without
	// Each come last, and an op with Each finds what ops without it took before
	// it under the same key. A request that was granted before, as one of its
	// leases shows, is known for such only where that lease is, and is charged
	// again elsewhere.
	PerPartition Atomicity = iota
	// Whole: any request up to MaxOps.
	Whole
)

// String returns the name used in documentation.
func (a Atomicity) String() string {
	return [...]string{"per partition", "whole request"}[a]
}

// Caps is what a backend promises. It is known without connecting, so that
// rules can be checked against it offline; backendtest holds the backend to
// each word.
type Caps struct {
	// Name is the backend's name in messages and metric labels.
	Name string
	// Variant says for messages why it promises less than others of that name do, such as
	// "layout=envoy".
	Variant string
	// Algorithms has an entry for each supported algorithm.
	Algorithms map[limit.Algorithm]AlgorithmCaps
	Atomicity  Atomicity
	// ServerClock: the store has a clock that all replicas share, so
	// Request.At may be zero.
	ServerClock bool
	// DenyOnFailure: who keeps limits in this store wants them right rather than loose. While it fails, rules that do
	// not say otherwise refuse.
	DenyOnFailure bool
	// Local: Take does no I/O; there is nothing to wait for or to combine.
	Local bool
	// Precision of instants. Finer ones are rounded down.
	Precision time.Duration
	// MaxOps of one request; 2 at least.
	MaxOps int
	// InFlight is how many calls of Take the store works on best at once, and
	// MaxSlice how many requests it likes in one. Zero: no matter.
	InFlight, MaxSlice int
	// SharedLogs: under a raw group (see limit.RawGroup) there is one sliding
	// log for all limits, because other programs know it by the group alone.
	// Such limits must have one window: see CheckShared.
	SharedLogs bool
	// PlainWindows: each window of a limit has a plain counter of its own, named by the
	// window's start, as envoyproxy/ratelimit keeps them. So an op counts in the window of
	// its instant, also if a later one has begun for others. A limit that saturates counts
	// on beyond itself, and costs below zero pay that back first. Under a text group (see
	// limit.TextGroup) the counters are those of that program.
	PlainWindows bool
	// Windows are those that limits may have; nil means any from Precision on.
	Windows []time.Duration
	// LongGroups: Key.Group may have limit.MaxTextGroupLen bytes, and not only MaxKeyLen.
	LongGroups bool
	// Others are what other stores promise, for messages: what this one cannot
	// keep one of them may.
	Others []Caps

	index *[math.MaxUint8 + 1]AlgorithmCaps // see Indexed
}

// Indexed returns c for those who check many requests: it finds an algorithm without a map.
func (c Caps) Indexed() Caps {
	c.index = new([math.MaxUint8 + 1]AlgorithmCaps)
	for a, ac := range c.Algorithms {
		c.index[a] = ac
	}
	return c
}

// algorithm returns what c promises for an algorithm: no units if that is nothing.
func (c *Caps) algorithm(a limit.Algorithm) AlgorithmCaps {
	if c.index != nil {
		return c.index[a]
	}
	return c.Algorithms[a]
}

// Shared reports whether l, under a raw group, counts in one log with all other
// limits there.
func (c *Caps) Shared(l *limit.Limit) bool {
	return c.SharedLogs && l.Is(limit.Logged)
}

// CheckShared reports why two limits cannot share a log, or nil: what the one
// with the shorter window drops the other still has to count.
func (c *Caps) CheckShared(l, other *limit.Limit) error {
	if l.Window() == other.Window() {
		return nil
	}
	return fmt.Errorf("%w: backend %s keeps one log for all limits that share a value, "+
		"and the windows of %v and %v differ",
		ErrUnsupported, c.Name, l, other)
}

// Title returns the backend's name with its variant.
func (c *Caps) Title() string {
	if c.Variant == "" {
		return c.Name
	}
	return c.Name + " (" + c.Variant + ")"
}

// MaxGroupLen returns how many bytes Key.Group may have.
func (c *Caps) MaxGroupLen() int {
	if c.LongGroups {
		return limit.MaxTextGroupLen
	}
	return MaxKeyLen
}

// AlgorithmCaps is what a backend promises for one algorithm.
type AlgorithmCaps struct {
	// MaxUnits is the largest Max (Burst for a token bucket).
	MaxUnits int64
	// Overflow is the last of the overflows that the backend keeps, in the order
	// Refuse, Saturate, Debt.
	Overflow limit.Overflow
	// Trips is the number of round trips of an uncontended Take.
	Trips int
}

// Promises returns what a backend promises for algorithms of which it keeps every overflow: as many units as limits may
// have, but only so many in a log, and so many leases.
func Promises(of []limit.Algorithm, logs, leases int64, trips int) map[limit.Algorithm]AlgorithmCaps {
	all := map[limit.Algorithm]AlgorithmCaps{}
	for _, a := range of {
		ac := AlgorithmCaps{MaxUnits: a.MaxUnits(), Overflow: limit.Debt, Trips: trips}
		switch {
		case a.Is(limit.Logged):
			ac.MaxUnits = logs
		case a.Is(limit.Leased):
			ac.MaxUnits, ac.Overflow = leases, limit.Refuse
		}
		all[a] = ac
	}
	return all
}

// Check reports why l cannot be kept under c, and who of Others can keep it, or nil.
func (c *Caps) Check(l *limit.Limit) error {
	err := c.check(l)
	if err == nil {
		return nil
	}
	var able []string
	for i := range c.Others {
		if other := &c.Others[i]; other.check(l) == nil && other.Title() != c.Title() &&
			!slices.Contains(able, other.Title()) {
			able = append(able, other.Title())
		}
	}
	if len(able) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s can", err, listed(able))
}

func (c *Caps) check(l *limit.Limit) error {
	ac, ok := c.Algorithms[l.Algorithm()]
	if !ok {
		return fmt.Errorf("%w: backend %s has no %v", ErrUnsupported, c.Title(), l.Algorithm())
	}
	if l.Capacity() > ac.MaxUnits {
		return fmt.Errorf("%w: backend %s keeps %v only up to %d units, not %d",
			ErrUnsupported, c.Title(), l.Algorithm(), ac.MaxUnits, l.Capacity())
	}
	if l.Overflow() > ac.Overflow {
		return fmt.Errorf("%w: backend %s has no overflow %v for %v", ErrUnsupported, c.Title(), l.Overflow(), l.Algorithm())
	}
	if l.Window() < c.Precision {
		return fmt.Errorf("%w: backend %s keeps time to %v, window %v is shorter",
			ErrUnsupported, c.Title(), c.Precision, l.Window())
	}
	if c.PlainWindows && l.Calendar() {
		return fmt.Errorf("%w: backend %s has no windows of the calendar", ErrUnsupported, c.Title())
	}
	if len(c.Windows) > 0 && !slices.Contains(c.Windows, l.Window()) {
		return fmt.Errorf("%w: backend %s keeps windows of %s only, not %s", ErrUnsupported, c.Title(),
			listed(shorts(c.Windows)), short(l.Window()))
	}
	return nil
}

// shorts writes durations as short does.
func shorts(all []time.Duration) (texts []string) {
	for _, d := range all {
		texts = append(texts, short(d))
	}
	return texts
}

// listed writes names as "1s, 1m and 1h".
func listed(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// short writes a duration without zeros at its end.
func short(d time.Duration) string {
	s := d.String()
	for _, unit := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, unit) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// CheckRequest reports why req cannot be taken under c, or nil. Its errors
// are also ErrNotApplied.
func (c *Caps) CheckRequest(req *limit.Request) error {
	switch {
	case len(req.Ops) == 0:
		return fmt.Errorf("%w: %w: no ops", ErrInvalid, ErrNotApplied)
	case len(req.Ops) > c.MaxOps:
		return fmt.Errorf("%w: %w: %d ops, at most %d", ErrInvalid, ErrNotApplied, len(req.Ops), c.MaxOps)
	case req.At == 0 && !c.ServerClock:
		return fmt.Errorf("%w: %w: backend %s has no clock and the request no instant", ErrInvalid, ErrNotApplied, c.Name)
	}
	for i := range req.Ops {
		if err := c.checkOp(&req.Ops[i]); err != nil {
			return fmt.Errorf("%w: %w", ErrNotApplied, err)
		}
		if req.Ops[i].AsOf != 0 && !settles(req.Ops, i) {
			return fmt.Errorf("%w: %w: op %d corrects no reservation of its group, and gives nothing back", ErrInvalid,
				ErrNotApplied, i)
		}
	}
	if limit.HasAlternatives(req.Ops) {
		if err := c.checkAlternatives(req.Ops); err != nil {
			return fmt.Errorf("%w: %w", ErrNotApplied, err)
		}
	}
	if c.SharedLogs {
		return c.checkSharedOps(req.Ops)
	}
	return nil
}

// Together reports whether the counters of two groups can be alternatives in one request.
func (c *Caps) Together(group, other string) bool {
	if c.Atomicity == Whole {
		return true
	}
	of, _ := limit.Partition(group)
	with, _ := limit.Partition(other)
	return of == with
}

// checkAlternatives reports why a request with alternatives cannot be decided in one step, or nil.
func (c *Caps) checkAlternatives(ops []limit.Op) error {
	if c.PlainWindows {
		return fmt.Errorf("%w: backend %s has no alternatives", ErrUnsupported, c.Title())
	}
	for i := range ops {
		if !c.Together(ops[0].Key.Group, ops[i].Key.Group) {
			return fmt.Errorf("%w: backend %s decides alternatives only where all keys are in one partition",
				ErrUnsupported, c.Title())
		}
		if ops[i].AsOf != 0 {
			return fmt.Errorf("%w: op %d corrects what was charged, in a request with alternatives", ErrInvalid, i)
		}
	}
	return nil
}

// settles reports whether ops[i] is an op of a settlement, all of whose ops have one group, or gives back alone.
func settles(ops []limit.Op, i int) bool {
	lease := &ops[0]
	if len(ops) == 1 {
		return lease.AsOf > 0 && lease.Cost < 0 && !lease.Limit.Is(limit.Leased)
	}
	for j := range ops[1:] {
		if op := &ops[j+1]; op.AsOf == 0 || op.Limit == nil || op.Limit.Is(limit.Leased) || op.Key.Group != lease.Key.Group {
			return false
		}
	}
	return i > 0 && lease.Limit != nil && lease.Limit.Is(limit.Leased) && lease.Cost < 0
}

// checkSharedOps reports why ops cannot share their logs.
func (c *Caps) checkSharedOps(ops []limit.Op) error {
	for i := range ops {
		op := &ops[i]
		if !c.Shared(op.Limit) || !limit.IsRawGroup(op.Key.Group) {
			continue
		}
		for j := range ops[:i] {
			if other := &ops[j]; other.Key.Group == op.Key.Group && c.Shared(other.Limit) {
				if err := c.CheckShared(op.Limit, other.Limit); err != nil {
					return fmt.Errorf("%w: %w", ErrNotApplied, err)
				}
			}
		}
	}
	return nil
}

// MaxKeyLen bounds each half of a key: see [Caps.MaxGroupLen] for the first.
const MaxKeyLen = 256

func (c *Caps) checkOp(op *limit.Op) error {
	if op.Limit == nil {
		return fmt.Errorf("%w: op without a limit", ErrInvalid)
	}
	if len(op.Key.Group) > c.MaxGroupLen() || len(op.Key.Limit) > MaxKeyLen {
		return fmt.Errorf("%w: key longer than %d bytes", ErrInvalid, MaxKeyLen)
	}
	if len(op.Holder) > limit.MaxHolderLen {
		return fmt.Errorf("%w: holder of %d bytes, at most %d", ErrInvalid, len(op.Holder), limit.MaxHolderLen)
	}
	if op.Limit.Is(limit.Leased) && op.Cost > 0 && op.Holder == "" {
		return fmt.Errorf("%w: a lease without a holder", ErrInvalid)
	}
	// Who ends, renews or counts leases need not know how many there may be.
	bounded := op.Cost > 0 || !op.Limit.Is(limit.Leased)
	if ac := c.algorithm(op.Limit.Algorithm()); ac.MaxUnits == 0 || bounded && op.Limit.Capacity() > ac.MaxUnits ||
		op.Limit.Overflow() > ac.Overflow || c.PlainWindows && op.Limit.Calendar() {
		return c.Check(op.Limit)
	}
	return nil
}

// Fail sets every verdict's error to err.
func Fail(out []limit.Verdict, err error) {
	for i := range out {
		out[i].Fail(err)
	}
}

// Failed returns the error of a call that failed because of err, as one of a kind. inDoubt says whether the call may
// have taken effect all the same.
func Failed(kind, err error, inDoubt bool) error {
	if inDoubt {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return fmt.Errorf("%w: %w: %w", kind, ErrNotApplied, err)
}

// A Figure is a number that a store or a layer keeps of itself: a row of the table of metrics.
type Figure = metrics.Row

// Figured is a store or a layer with figures. They are asked for once.
type Figured interface{ Figures() []Figure }

// Into how many parts, each with a lock of its own, stores and layers in memory divide their keys.
const (
	// MaxShards is the largest number of shards: as many as a uint64 has bits, so that
	// one can be a set of them.
	MaxShards = 64
	// MinShardKeys is how many keys a shard has room for at least.
	MinShardKeys = 1024
)

// ShardCount returns the number of shards for so many keys, a power of two.
func ShardCount(keys int) int {
	n := 1
	for n < MaxShards && keys/(2*n) >= MinShardKeys {
		n *= 2
	}
	return n
}
