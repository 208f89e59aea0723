package slotstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
)

// A Schedule runs simulated callers one at a time. Whenever one is about to do
// a statement on a Model it hands over, and the seed decides who goes on: the
// same seed and the same callers give the same run.
type Schedule struct {
	rng     *rand.Rand
	callers []*caller
	later   []func() // what the database does on its own, sooner or later
	back    chan struct{}
	stop    chan struct{}
	wait    sync.WaitGroup
}

// A caller is a goroutine that runs while it has its turn.
type caller struct {
	number   int
	schedule *Schedule
	turn     chan struct{}
	ready    func() bool // nil: any time
	done     bool
	open     *modelTx // its transaction, to see that it has but one
}

type callerKey struct{}

// callerOf returns the caller whose context it is; nil means none: then
// statements are done at once.
func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// NewSchedule returns a Schedule without callers.
func NewSchedule(seed uint64) *Schedule {
	return &Schedule{
		rng: rand.New(rand.NewPCG(seed, 0x5107)), back: make(chan struct{}), stop: make(chan struct{}),
	}
}

// Go adds a caller. It must pass its context on to the Model, and must not wait
// for other callers by itself.
func (s *Schedule) Go(ctx context.Context, f func(ctx context.Context)) {
	c := &caller{number: len(s.callers), schedule: s, turn: make(chan struct{})}
	s.callers = append(s.callers, c)
	ctx = context.WithValue(ctx, callerKey{}, c)
	s.wait.Go(func() {
		c.await()
		f(ctx)
		if !c.over() {
			c.done = true
			s.back <- struct{}{}
		}
	})
}

// Run runs the callers until all have ended. It is an error if none can go on,
// or if they need more turns than limit.
func (s *Schedule) Run(limit int) error {
	defer s.wait.Wait()
	defer close(s.stop)
	for range limit {
		ready, waiting := s.ready()
		n := len(ready) + len(s.later)
		if n == 0 && waiting == 0 {
			return nil
		}
		if n == 0 {
			return fmt.Errorf("%d callers wait for each other", waiting)
		}
		if i := s.rng.IntN(n); i < len(ready) {
			ready[i].turn <- struct{}{}
			<-s.back
		} else {
			s.doLater(i - len(ready))
		}
	}
	return fmt.Errorf("the callers have not ended after %d turns", limit)
}

func (s *Schedule) ready() (ready []*caller, waiting int) {
	for _, c := range s.callers {
		switch {
		case c.done:
		case c.ready == nil || c.ready():
			ready = append(ready, c)
		default:
			waiting++
		}
	}
	return ready, waiting
}

func (s *Schedule) doLater(i int) {
	f := s.later[i]
	s.later = append(s.later[:i], s.later[i+1:]...)
	f()
}

// pause hands over until the caller is chosen again, which it is not before
// ready says so.
func (c *caller) pause(ready func() bool) {
	c.ready = ready
	select {
	case c.schedule.back <- struct{}{}:
	case <-c.schedule.stop:
		return
	}
	c.await()
	c.ready = nil
}

func (c *caller) await() {
	select {
	case <-c.turn:
	case <-c.schedule.stop:
	}
}

// over reports whether the Schedule has given up: all statements fail then.
func (c *caller) over() bool {
	select {
	case <-c.schedule.stop:
		return true
	default:
		return false
	}
}
