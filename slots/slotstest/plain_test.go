package slotstest

import (
	"context"

	"github.com/headgate-rls/headgate/slots"
)

// plainEngine is a second engine, short and without any hints, for two uses: to
// compare with, and to be broken on purpose.
type plainEngine struct {
	t    slots.Tables
	flaw string
}

type plainSearch struct {
	*slots.Search
	*plainEngine
	found  slots.Found
	passed bool

	reached    bool // the next two are known
	end, limit int64
}

func (e *plainEngine) Assign(ctx context.Context, s *slots.Search) (slots.Found, error) {
	p := &plainSearch{Search: s, plainEngine: e, found: slots.Found{
		Answers: make([]slots.Answer, len(s.Asks)), FirstCount: -1, LowMs: s.FromMs,
	}}
	if err := p.find(ctx); err != nil {
		return p.found, err
	}
	for i := range s.Asks {
		if p.found.Answers[i].Status != slots.Unplaced {
			continue
		}
		if err := p.one(ctx, i); err != nil {
			return p.found, err
		}
		if p.found.Held { // the search is not over, for none of them
			p.found.Exhausted = false
			break
		}
	}
	return p.found, nil
}

func (p *plainSearch) find(ctx context.Context) error {
	for i, a := range p.Asks {
		have, err := p.t.Find(ctx, []string{a.EventID})
		if err != nil {
			return err
		}
		if len(have) > 0 && p.flaw != "a retry assigns again" {
			p.found.Answers[i] = slots.Answer{Status: slots.Existing, Slot: have[0]}
			if have[0].ID == a.SlotID {
				p.found.Answers[i].Status = slots.New
			}
		}
	}
	return nil
}

// one places one ask.
func (p *plainSearch) one(ctx context.Context, i int) error {
	if p.Asks[i].FirstMax > 0 {
		if _, err := p.t.Provision(ctx, p.Series, p.FirstMs, p.FirstMs+p.SizeMs, nil); err != nil {
			return err
		}
		limit := p.Asks[i].FirstMax
		if p.flaw == "the first window has its full capacity" {
			limit = p.Max
		}
		if done, err := p.try(ctx, i, p.FirstMs, limit); done || err != nil {
			return err
		}
		if p.Wait && p.passed {
			p.found.Held = true
			return nil
		}
	}
	return p.later(ctx, i)
}

// reach finds out how far windows are provisioned, and how far to search.
func (p *plainSearch) reach(ctx context.Context) error {
	if p.reached {
		return nil
	}
	end, ok := p.FrontierMs, p.FrontierMs != 0
	if !ok {
		var err error
		if end, ok, err = p.t.Frontier(ctx, p.Series, p.GridMs()); err != nil {
			return err
		}
	}
	if !ok {
		end = p.GridMs()
	}
	p.reached, p.end, p.limit = true, end, p.LimitMs(end)
	if p.flaw == "the search ends a window early" {
		p.limit -= p.SizeMs
	}
	return nil
}

func (p *plainSearch) later(ctx context.Context, i int) error {
	if err := p.reach(ctx); err != nil {
		return err
	}
	for from := p.FromMs; ; {
		done, err := p.scan(ctx, i, from, min(p.end, p.limit))
		if err == nil && !done && p.passed && !p.Wait {
			done, err = p.scan(ctx, i, p.FromMs, min(p.end, p.limit))
		}
		if done || err != nil || p.found.Held {
			return err
		}
		if p.end >= p.limit {
			p.found.Exhausted = true
			return nil
		}
		from = max(p.FromMs, p.end)
		if err := p.extend(ctx); err != nil {
			return err
		}
	}
}

func (p *plainSearch) extend(ctx context.Context) error {
	from, to := p.end, p.end+int64(p.Chunk)*p.SizeMs
	if p.flaw == "provisioning begins after the chunk's start" {
		from = max(from, p.BaseMs)
	}
	f := &slots.Frontier{ChunkMs: p.GridMs(), EndMs: to}
	if p.flaw == "the frontier is not written" {
		f = nil
	}
	if p.flaw == "provisioning holds a lock" {
		tx, err := p.t.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
	}
	_, err := p.t.Provision(ctx, p.Series, from, to, f)
	p.end = to
	return err
}

// scan tries the windows [from, end).
func (p *plainSearch) scan(ctx context.Context, i int, from, end int64) (bool, error) {
	for from < end {
		at, ok, err := p.t.Scout(ctx, p.Series, from, end, p.Max)
		if err != nil || !ok {
			return false, err
		}
		done, err := p.try(ctx, i, at, p.Max)
		if done || err != nil {
			return done, err
		}
		if p.passed && p.Wait {
			p.found.Held = true
			return false, nil
		}
		if p.flaw == "advances past a second scout's window (F1)" {
			if at, ok, err = p.t.Scout(ctx, p.Series, from, end, p.Max); err != nil || !ok {
				return false, err
			}
		}
		from = at + p.SizeMs
	}
	return false, nil
}

// try claims a place in the window.
func (p *plainSearch) try(ctx context.Context, i int, at, limit int64) (bool, error) {
	tx, err := p.t.Begin(ctx)
	if err != nil {
		return false, err
	}
	if p.flaw != "a transaction is left open" {
		defer tx.Rollback()
	}
	count, ok, err := tx.Lock(ctx, p.Series, at, limit)
	if err != nil {
		return false, err
	}
	if !ok {
		if p.flaw != "a transaction is left open" {
			tx.Rollback()
		}
		count, _, err := p.t.Peek(ctx, p.Series, at)
		p.passed = p.passed || count < limit // else it is merely full
		return false, err
	}
	a := &p.Asks[i]
	slot := slots.Slot{
		ID: a.SlotID, EventID: a.EventID, Series: p.Series, RequestedUs: a.RequestedUs, WindowMs: at,
		ScheduledMs: p.ScheduledMs(a, at, count), ConfigID: p.ConfigID,
	}
	if p.flaw == "the jitter ignores what is over of the window" {
		slot.ScheduledMs = at + int64(a.Bits)%p.SizeMs
	}
	if err := tx.Claim(ctx, p.Series, at, []slots.Slot{slot}); err != nil {
		return false, err
	}
	if p.flaw == "answers before it commits" {
		p.found.Answers[i] = slots.Answer{Status: slots.New, Slot: slot}
	}
	if err := tx.Commit(ctx); err != nil && p.flaw != "a lost commit is a success" {
		return false, err
	}
	p.found.Answers[i] = slots.Answer{Status: slots.New, Slot: slot}
	return true, nil
}
