package observe

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-rls/headgate/backends"
	"github.com/headgate-rls/headgate/limit"
)

// A Recorder records each call. There is one for each backend, so that it
// can look its labels up once. Its methods are called concurrently, on the way
// of every request: they must not block.
type Recorder interface {
	// Take records a Take of so many requests that took d. failed has, by
	// class, the number of them that were not decided; failed[None] is zero.
	Take(requests int, d time.Duration, failed [NumClasses]int)
	// Call records each call but Take and Close.
	Call(op Op, d time.Duration, class Class)
}

// An Op is a method of a backend.
type Op uint8

// The ops of Recorder.Call.
const (
	Forget Op = iota
	Ping

	NumOps = iota
)

// String returns the op as a label.
func (o Op) String() string { return [...]string{"forget", "ping"}[o] }

// A Class is a kind of error, by the errors of package backends.
type Class uint8

// The classes. Other is an error that no backend may return.
const (
	None Class = iota
	Unavailable
	Declined // although the store answers
	Unsupported
	Invalid
	Corrupt
	Later // a later version of headgate has written what is there
	Other

	NumClasses = iota
)

// String returns the class as a label.
func (c Class) String() string {
	return [...]string{"none", "unavailable", "declined", "unsupported", "invalid", "corrupt", "later",
		"other"}[c]
}

// ClassOf returns err's class. An error of several is what is the most
// telling: the caller's fault, then the data's, then the store's.
func ClassOf(err error) Class {
	switch {
	case err == nil:
		return None
	case errors.Is(err, backends.ErrInvalid):
		return Invalid
	case errors.Is(err, backends.ErrUnsupported):
		return Unsupported
	case errors.Is(err, backends.ErrLater):
		return Later
	case errors.Is(err, backends.ErrCorrupt):
		return Corrupt
	case errors.Is(err, backends.ErrDeclined):
		return Declined
	case errors.Is(err, backends.ErrUnavailable):
		return Unavailable
	}
	return Other
}

// A Backend records the calls to another one.
type Backend struct {
	backends.Backend // the other one

	rec Recorder
	now func() time.Time
}

var _ backends.Backend = (*Backend)(nil)

// New returns a backend that reports each call to next to rec, and closes next
// with itself. now measures durations; outside tests it is time.Now.
func New(next backends.Backend, rec Recorder, now func() time.Time) *Backend {
	return &Backend{Backend: next, rec: rec, now: now}
}

// Take passes reqs on and records duration and errors.
func (b *Backend) Take(ctx context.Context, reqs []limit.Request, out []limit.Verdict) {
	began := b.now()
	b.Backend.Take(ctx, reqs, out)
	d := b.now().Sub(began)
	var failed [NumClasses]int
	for i := range out {
		if err := out[i].Err; err != nil {
			failed[ClassOf(err)]++
		}
	}
	b.rec.Take(len(reqs), d, failed)
}

// record makes a call, and reports it.
func (b *Backend) record(op Op, call func() error) error {
	began := b.now()
	err := call()
	b.rec.Call(op, b.now().Sub(began), ClassOf(err))
	return err
}

// Forget passes keys on.
func (b *Backend) Forget(ctx context.Context, keys []limit.Key) error {
	return b.record(Forget, func() error { return b.Backend.Forget(ctx, keys) })
}

// Ping asks the store.
func (b *Backend) Ping(ctx context.Context) error {
	return b.record(Ping, func() error { return b.Backend.Ping(ctx) })
}
