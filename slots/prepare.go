package slots

import (
	"context"

	"github.com/headgate-rls/headgate/slots/plan"
)

// prepare checks a request and makes it a waiter for a search.
func (s *Scheduler) prepare(ctx context.Context, r Request) (*waiter, error) {
	us, err := s.checkRequest(&r)
	if err != nil {
		return nil, err
	}
	config, err := s.configs.get(ctx, r.ConfigName)
	if err != nil {
		return nil, named(err, r.ConfigName)
	}
	return s.newWaiter(ctx, r, us, config)
}

// newWaiter makes a request, of an instant in microseconds, a waiter for a search under a
// version of its config.
func (s *Scheduler) newWaiter(ctx context.Context, r Request, us int64, config Config) (*waiter, error) {
	series, err := s.series(ctx, config)
	if err != nil {
		return nil, err
	}
	firstMs := plan.WindowStart(us, config.SizeMs)
	elapsed := plan.Elapsed(us, config.SizeMs)
	deadline, _ := ctx.Deadline()
	c := &waiter{
		config: config, series: series, firstMs: firstMs, reachMs: reachOf(&config, us), deadline: deadline,
		done: make(chan struct{}),
		ask: Ask{
			EventID: r.EventID, SlotID: s.settings.NewID(), RequestedUs: us, ElapsedMs: elapsed,
			FirstMax: plan.FirstCapacity(config.Max, elapsed, config.SizeMs), Bits: s.settings.Bits(),
		},
	}
	if from, _, open := config.Options.Calendar.Span(firstMs, config.SizeMs); !open || from != firstMs {
		c.ask.FirstMax = 0 // the calendar closes it
	}
	return c, nil
}
