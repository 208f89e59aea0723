package table

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-rls/headgate/policies"
)

// Times of followers and editors.
const (
	// pollIdle is how often a follower asks while nothing changes, and pollWatched how often
	// while changes are announced.
	pollIdle    = time.Second
	pollWatched = 50 * time.Millisecond
	// noticed is how long it takes until every follower has seen an announcement.
	noticed = pollIdle + 250*time.Millisecond
	// watchFor is for how long followers look often after a change or its announcement.
	watchFor = 10 * time.Second
	// perEdit is the time that each edit may take beyond that.
	perEdit = 200 * time.Microsecond
	// longestWatch is for how long followers look often at most: all policies are changed, and as
	// many are removed.
	longestWatch = watchFor + 2*MaxPolicies*perEdit
	// Settle is how long after its commit a change is in force everywhere.
	Settle = 250 * time.Millisecond

	// readAgain is how long a follower waits at most until it reads policies again that could not
	// be read: a reading may be of all of them.
	readAgain = 30 * time.Second

	stateWithin = 2 * time.Second
	readWithin  = 2 * time.Minute
)

// MaxPolicies bounds how many policies a store may have, and so the memory of each process.
const MaxPolicies = 2_000_000

// A State is what followers ask a store for repeatedly. Instants are the store's, in
// microseconds since the epoch.
type State struct {
	// Generation grows by 1 with each change.
	Generation int64
	// Floor is the oldest generation since which the changes are known. Followers of an older one
	// read everything.
	Floor int64
	// Policies is how many there are.
	Policies int64
	// From WatchFrom until WatchUntil, changes may be made: followers look often then.
	WatchFrom, WatchUntil int64
	Now                   int64
	// ReadOnly: nothing can be changed at the moment, as far as the store knows.
	ReadOnly bool
}

// Watched reports whether followers look often now. They do not by instants of another clock: the
// store's may have been set back, or another server may have taken over.
func (s *State) Watched() bool {
	return s.WatchFrom <= s.Now && s.Now < s.WatchUntil && s.WatchUntil-s.Now <= longestWatch.Microseconds()
}

// A Store keeps policies. Its methods may be called from any goroutine. Its errors are for people;
// none of them is about what a caller asked for, except those of Apply.
type Store interface {
	// State returns the state, by one query.
	State(ctx context.Context) (State, error)
	// Read calls each for every policy that was changed or removed after a generation; for all
	// that there are, after -1. It returns the generation of what it has read, which is that of
	// one moment. An error of each ends it.
	Read(ctx context.Context, after int64, each func(Row) error) (generation int64, err error)
	// Watch has followers look often from now until some microseconds later, and returns the
	// state after that. WatchFrom stays if followers look often already.
	Watch(ctx context.Context, us int64) (State, error)
	// Apply does the edits in one transaction, or none of them. If they change anything, the
	// generation grows, and followers go on looking often for some microseconds. With dryRun it
	// changes nothing, and returns what would be.
	Apply(ctx context.Context, edits []Edit, by string, us int64, dryRun bool) ([]Outcome, error)
	// Get returns one policy; ok is false if it does not exist.
	Get(ctx context.Context, key string) (p Policy, ok bool, err error)
	// List returns at most n policies whose keys come after one and begin with a prefix, in the
	// order of their bytes.
	List(ctx context.Context, after, prefix string, n int) ([]Policy, error)
	// History returns at most n changes of a key, or of all if key is empty, the newest
	// first; with before, only those whose number is below it. Each change is kept in the transaction that makes it, and
	// for as long as [HistoryOfKey] and [HistoryOfAll] have room for it.
	History(ctx context.Context, key string, before int64, n int) ([]Entry, error)
}

// MaxChangedBy bounds Policy.ChangedBy, in bytes.
const MaxChangedBy = 128

// A Policy is one policy as it is stored.
type Policy struct {
	ID  int64 // the store's number for the row
	Key string
	policies.Figures
	// Version is 1 when the policy is made, and grows by 1 with each change.
	Version   int64
	ChangedBy string // who changed it last, as they were known to what changed it
	ChangedAt time.Time
}

// A Row is what a store has of a policy, as it is there. Somebody may have written it by hand.
type Row struct {
	Key            string
	Removed        bool
	Type           string
	Capacity       int64
	Refill, Window string // amounts
}

// figures checks a row.
func (r *Row) figures() (f policies.Figures, err error) {
	key, err := policies.Normalize(r.Key)
	if err == nil && key != r.Key {
		err = fmt.Errorf("the key is written %q", key)
	}
	if err == nil {
		f, err = ReadFigures(r.Type, r.Capacity, r.Refill, r.Window)
	}
	if err == nil {
		_, err = f.Limit()
	}
	return f, err
}

// ReadFigures parses the columns of a policy. With an error, the first one, it returns the figures that it could parse.
func ReadFigures(kind string, capacity int64, refill, window string) (f policies.Figures, err error) {
	var wrong [3]error
	f.Capacity = capacity
	f.Algorithm, wrong[0] = policies.ParseType(kind)
	f.Refill, wrong[1] = policies.ParseAmount(refill)
	f.Window, wrong[2] = policies.ParseAmount(window)
	return f, cmp.Or(wrong[:]...)
}

// An Edit makes, changes or removes a policy.
type Edit struct {
	Key    string
	Remove bool
	policies.Figures
	// If says what must hold for the edit. Version and ID are those of IfVersion; an ID of 0 is
	// any. A policy that was removed and made again has another ID, and begins with version 1.
	If          Condition
	Version, ID int64
}

// A Condition is what an edit needs.
type Condition uint8

// The conditions.
const (
	Always    Condition = iota
	IfAbsent            // the policy must not exist; otherwise ErrExists
	IfPresent           // the policy must exist; otherwise ErrNotFound
	IfVersion           // the policy must have this version; otherwise ErrVersion or ErrNotFound
)

// An Outcome is what became of an edit: the policy before and after it, nil if there was none.
type Outcome struct {
	Before, After *Policy
}

// Changed reports whether the edit changed anything.
func (o *Outcome) Changed() bool {
	return (o.Before == nil) != (o.After == nil) || o.Before != nil && o.Before.Figures != o.After.Figures
}

// Errors of edits. Errors that wrap them say which policy.
var (
	ErrNotFound = errors.New("there is no such policy")
	ErrExists   = errors.New("there is such a policy already")
	ErrVersion  = errors.New("the policy has been changed meanwhile")
	ErrInvalid  = errors.New("the policy is invalid")
	ErrReadOnly = errors.New("the database of policies takes no changes: it is read-only")
	ErrTooMany  = fmt.Errorf("there may be at most %d policies", MaxPolicies)
)

// Check reports whether the edit may be done to a policy; nil means none.
func (e *Edit) Check(before *Policy) error {
	switch {
	case e.If == IfAbsent && before != nil:
		return fmt.Errorf("%s: %w, of version %d", e.Key, ErrExists, before.Version)
	case (e.If == IfPresent || e.If == IfVersion) && before == nil:
		return fmt.Errorf("%s: %w", e.Key, ErrNotFound)
	case e.If == IfVersion && before.Version != e.Version:
		return fmt.Errorf("%s: %w: it has version %d, not %d", e.Key, ErrVersion, before.Version, e.Version)
	case e.If == IfVersion && e.ID != 0 && before.ID != e.ID:
		return fmt.Errorf("%s: %w: it was removed, and made again", e.Key, ErrVersion)
	}
	return nil
}

// check reports what is wrong with an edit by itself.
func (e *Edit) check() error {
	key, err := policies.Normalize(e.Key)
	switch {
	case err != nil:
		return err
	case key != e.Key:
		return fmt.Errorf("the key is written %q", key)
	case e.Remove:
		return nil
	}
	_, err = e.Figures.Limit()
	return err
}

// Bounds of a store's history. It keeps the newest HistoryOfKey changes of each key, as far as they
// are among the newest HistoryOfAll changes of all keys. So an import of as many policies as there
// may be leaves an entry for each of them.
const (
	HistoryOfKey = 100
	HistoryOfAll = MaxPolicies
)

// An Entry is one change of one policy, as the history of a store has it.
type Entry struct {
	// Number grows with each change. An entry with a larger one was made later.
	Number int64
	// Generation is that of the transaction. Policies that were changed together have the same.
	Generation int64
	Key        string
	By         string    // as Policy.ChangedBy
	At         time.Time // by the clock of the database
	// Before and After are what the policy was and became; nil if there was none.
	Before, After *Revision
}

// A Revision is what a policy said at some time.
type Revision struct {
	policies.Figures
	Version int64
}

// TimeText writes an instant as JSON has it: in UTC, with microseconds.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// OlderWords are figures in the older words of JSON, which stand beside those of rules.
type OlderWords struct {
	Type          string          `json:"type"`
	Capacity      int64           `json:"capacity"`
	RefillRate    policies.Amount `json:"refillRate"`
	WindowSeconds policies.Amount `json:"windowSeconds"`
}

// OlderWordsOf returns figures in the older words.
func OlderWordsOf(f policies.Figures) OlderWords {
	return OlderWords{policies.TypeOf(f.Algorithm), f.Capacity, f.Refill, f.Window}
}

// MarshalJSON writes an entry as the admin API and the command line print it.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Number     int64     `json:"number"`
		Generation int64     `json:"generation"`
		Key        string    `json:"key"`
		PolicyKey  string    `json:"policyKey"`
		ChangedBy  string    `json:"changedBy"`
		ChangedAt  string    `json:"changedAt"`
		Before     *Revision `json:"before"` // null: there was no policy
		After      *Revision `json:"after"`
	}{e.Number, e.Generation, e.Key, e.Key, e.By, TimeText(e.At), e.Before, e.After})
}

// MarshalJSON writes a revision as a part of an entry.
func (r Revision) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		policies.Words
		OlderWords
		Version int64 `json:"version"`
	}{r.Words(), OlderWordsOf(r.Figures), r.Version})
}
